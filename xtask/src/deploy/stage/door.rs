//! A door before a silo's port: connections pass as if it were not there, but for those of one
//! process, which get neither an answer nor a refusal, as behind a firewall. Linux tells whose a
//! connection is.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::Failure;

/// How often threads look whether they are needed.
const LOOK: Duration = Duration::from_millis(50);

/// Dropping it ends every connection through it.
pub(super) struct Door {
    shared: Arc<Shared>,
}

struct Shared {
    to: u16,
    /// The process that is shut out; 0 = none.
    shut_out: AtomicU32,
    links: Mutex<Vec<Arc<Link>>>,
    ended: AtomicBool,
}

/// A connection and its way on; they stay open while they are silent.
struct Link {
    ends: [TcpStream; 2],
    /// The number of the socket that dialled.
    socket: String,
    silent: AtomicBool,
}

impl Door {
    /// From one port of 127.0.0.1 to another one.
    pub(super) fn open(from: u16, to: u16) -> Result<Self, Failure> {
        let listener = TcpListener::bind(("127.0.0.1", from))?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            to,
            shut_out: AtomicU32::new(0),
            links: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let of_thread = shared.clone();
        thread::spawn(move || of_thread.accept(&listener));
        Ok(Self { shared })
    }

    /// What this process sends falls silent, and it gets no new connection. The others pass.
    pub(super) fn shut_out(&self, process: u32) {
        self.shared.shut_out.store(process, Ordering::SeqCst);
        for link in self.shared.links().iter() {
            if has_socket(process, &link.socket) {
                link.silent.store(true, Ordering::SeqCst);
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for link in self.shared.links().iter() {
            link.close();
        }
    }
}

impl Shared {
    fn links(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, listener: &TcpListener) {
        // The connections that were shut out stay open until the door ends.
        let mut outside = Vec::new();
        while !self.ended.load(Ordering::SeqCst) {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(LOOK);
                continue;
            };
            let shut_out = self.shut_out.load(Ordering::SeqCst);
            let socket = socket_of(&stream).unwrap_or_default();
            if shut_out != 0 && has_socket(shut_out, &socket) {
                outside.push(stream);
            } else if let Ok(link) = Link::between(stream, self.to, socket) {
                self.links().push(link);
            }
        }
    }
}

impl Link {
    fn between(stream: TcpStream, to: u16, socket: String) -> std::io::Result<Arc<Self>> {
        stream.set_nonblocking(false)?;
        let link = Arc::new(Self {
            ends: [stream, TcpStream::connect(("127.0.0.1", to))?],
            socket,
            silent: AtomicBool::new(false),
        });
        for from in [0, 1] {
            link.ends[from].set_nodelay(true)?;
            let link = link.clone();
            thread::spawn(move || link.carry(from));
        }
        Ok(link)
    }

    fn carry(&self, from: usize) {
        let [mut source, mut sink] = [&self.ends[from], &self.ends[1 - from]];
        let mut buffer = [0; 16 * 1024];
        while let Ok(count) = source.read(&mut buffer) {
            if count == 0 {
                break;
            }
            if !self.silent.load(Ordering::SeqCst) && sink.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        self.close();
    }

    fn close(&self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// The number of the socket at the other end, which is on this machine.
fn socket_of(stream: &TcpStream) -> Option<String> {
    let (near, far) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let (near, far) = (
        format!(":{:04X}", near.port()),
        format!(":{:04X}", far.port()),
    );
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1)?.ends_with(&far) && fields.get(2)?.ends_with(&near);
        is_it.then(|| fields.get(9).map(ToString::to_string))?
    })
}

fn has_socket(process: u32, socket: &str) -> bool {
    let link = format!("socket:[{socket}]");
    let files = fs::read_dir(format!("/proc/{process}/fd"));
    let mut files = files.into_iter().flatten().filter_map(Result::ok);
    files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == link.as_str()))
}
