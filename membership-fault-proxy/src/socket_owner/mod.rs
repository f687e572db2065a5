//! Finds out who owns the other end of a connection: this process, in which the tables under test
//! live, or another one.
//!
//! Servers that advertise a proxy also reach each other through it. The proxy knows no protocol,
//! and a server's link looks like a client's connection. But a server is another process, and the
//! proxy can list the sockets of its own. It looks once, when a connection is accepted, because the
//! owner of the other end does not change.

#[cfg(target_os = "linux")]
mod far_end;
#[cfg(all(target_os = "linux", feature = "kernel-sockets"))]
mod netlink;
#[cfg(target_os = "linux")]
mod proc_net;

#[cfg(target_os = "linux")]
use std::net::SocketAddr;

#[cfg(target_os = "linux")]
use far_end::FarEnd;
use tokio::net::TcpStream;

/// Whether the other end is a socket of this process. None where that cannot be found out: on
/// systems other than Linux.
#[cfg(target_os = "linux")]
pub(super) fn held_here(connection: &TcpStream) -> Option<bool> {
    let local = canonical(connection.local_addr().ok()?);
    let remote = canonical(connection.peer_addr().ok()?);
    match from_kernel(local, remote).or_else(|| proc_net::far_end(local, remote))? {
        FarEnd::Here(inode) => holds(inode),
        FarEnd::Elsewhere => Some(false),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn held_here(_connection: &TcpStream) -> Option<bool> {
    None
}

/// The kernel's answer about one socket; none where the kernel cannot be asked.
#[cfg(all(target_os = "linux", feature = "kernel-sockets"))]
fn from_kernel(local: SocketAddr, remote: SocketAddr) -> Option<FarEnd> {
    netlink::far_end(local, remote)
}

#[cfg(all(target_os = "linux", not(feature = "kernel-sockets")))]
fn from_kernel(_ours: SocketAddr, _theirs: SocketAddr) -> Option<FarEnd> {
    None
}

/// Whether this process has this socket open.
#[cfg(target_os = "linux")]
fn holds(inode: u64) -> Option<bool> {
    let name = format!("socket:[{inode}]");
    let mut files = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
    Some(files.any(|file| {
        std::fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == name.as_str())
    }))
}

/// An IPv4 address that is mapped into IPv6 becomes the IPv4 address.
#[cfg(target_os = "linux")]
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};

    /// Both sources give the same answer.
    fn from_either_source(accepted: &TcpStream) -> Option<FarEnd> {
        let (local, remote) = (
            canonical(accepted.local_addr().ok()?),
            canonical(accepted.peer_addr().ok()?),
        );
        let listed = proc_net::far_end(local, remote);
        // Not every kernel answers.
        assert!(
            from_kernel(local, remote).is_none_or(|found| Some(found) == listed),
            "{listed:?}"
        );
        listed
    }

    #[tokio::test]
    async fn a_socket_of_this_process_is_known() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // Not every machine has IPv6.
            let Ok(listener) = TcpListener::bind(address).await else {
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            assert!(matches!(
                from_either_source(&accepted),
                Some(FarEnd::Here(_))
            ));
            assert_eq!(held_here(&accepted), Some(true));
            drop(client);
            assert_eq!(held_here(&accepted), Some(false));
        }
    }

    #[tokio::test]
    async fn a_mapped_ipv4_address_is_the_same_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!(
            "[::ffff:127.0.0.1]:{}",
            listener.local_addr().unwrap().port()
        );
        let Ok(socket) = TcpSocket::new_v6() else {
            return;
        };
        let Ok(_client) = socket.connect(address.parse().unwrap()).await else {
            return;
        };
        let (accepted, _) = listener.accept().await.unwrap();
        assert!(matches!(
            from_either_source(&accepted),
            Some(FarEnd::Here(_))
        ));
        assert_eq!(held_here(&accepted), Some(true));
    }

    #[tokio::test]
    async fn a_listening_socket_is_not_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let other = SocketAddr::new(address.ip(), 1);
        assert_eq!(from_kernel(other, address), None);
        assert_eq!(proc_net::far_end(other, address), None);
    }
}
