//! Where a proxy listens.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

use crate::fault::Away;
use crate::pipe;
use crate::shared::Shared;

/// One address, and the server behind it. Gone, and its connections with it, when dropped.
#[derive(Debug)]
pub(crate) struct Door {
    pub address: SocketAddr,
    target: Arc<Mutex<Option<SocketAddr>>>,
    task: JoinHandle<()>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Door {
    pub fn open(
        shared: Arc<Shared>,
        listen: SocketAddr,
        target: Option<SocketAddr>,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let listener = bind(listen)?.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let target = Arc::new(Mutex::new(target));
        let task = runtime.spawn(serve(shared, listener, address, target.clone()));
        Ok(Self {
            address,
            target,
            task,
        })
    }

    pub fn set_target(&self, target: SocketAddr) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }
}

const BACKLOG: u32 = 1024;

/// The address without a listener: nobody else can take it, and connecting is refused.
fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    address: SocketAddr,
    target: Arc<Mutex<Option<SocketAddr>>>,
) {
    let mut pipes = JoinSet::new();
    let mut bell = shared.bell();
    let mut listener = Some(listener);
    let mut closed = None;
    loop {
        let away = shared.look().away;
        if away == Some(Away::Refused) {
            if listener.take().is_some() {
                closed = bind(address).ok();
            }
        } else if listener.is_none() {
            listener = closed
                .take()
                .map_or_else(|| bind(address), Ok)
                .and_then(|socket| socket.listen(BACKLOG))
                .ok();
            if listener.is_none() {
                // Connections that are closing may hold the address for a moment.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = accepted => match accepted {
                Ok((client, _)) if shared.look().away.is_some() => {
                    let _ = client.set_zero_linger();
                }
                Ok((client, _)) => {
                    let target = *target.lock().unwrap_or_else(PoisonError::into_inner);
                    pipes.spawn(pipe::run(shared.clone(), client, target));
                }
                // No file descriptors left: others may come free.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            changed = bell.changed() => if changed.is_err() {
                return;
            },
            Some(_) = pipes.join_next() => {}
        }
    }
}
