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

/// One address, and the server behind it. Dropping it closes the address and its connections.
#[derive(Debug)]
pub(crate) struct Listener {
    pub address: SocketAddr,
    target: Arc<Mutex<Option<SocketAddr>>>,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
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

/// Binds the address without listening: nobody else can take it, and connecting is refused.
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
    let mut changes = shared.changes();
    let mut listener = Some(listener);
    let mut closed = None;
    loop {
        let away = shared.state().away;
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
                Ok((client, _)) if shared.state().away.is_some() => {
                    let _ = client.set_zero_linger();
                }
                Ok((client, _)) => {
                    let target = *target.lock().unwrap_or_else(PoisonError::into_inner);
                    pipes.spawn(pipe::run(shared.clone(), client, target));
                }
                // No file descriptors are left; other connections may free some.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            changed = changes.changed() => if changed.is_err() {
                return;
            },
            Some(_) = pipes.join_next() => {}
        }
    }
}
