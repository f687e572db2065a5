//! Whose the other end of a connection is: that of this process, where the tables under test live, or somebody else's.
//!
//! Servers that were told to advertise a proxy also reach each other through it. The proxy speaks no protocol, and a server's link looks
//! like a client's; but the sockets of this process are known to it, and a server is another process. Looked up once, when a connection
//! is taken, because the other end cannot change hands.

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

/// Whether the other end is a socket of this process. None where that cannot be found out: on systems other than Linux.
#[cfg(target_os = "linux")]
pub(super) fn held_here(connection: &TcpStream) -> Option<bool> {
    let ours = plain(connection.local_addr().ok()?);
    let theirs = plain(connection.peer_addr().ok()?);
    match from_kernel(ours, theirs).or_else(|| proc_net::far_end(ours, theirs))? {
        FarEnd::Here(inode) => holds(inode),
        FarEnd::Elsewhere => Some(false),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn held_here(_connection: &TcpStream) -> Option<bool> {
    None
}

/// The kernel's own answer about one socket; none where it cannot be asked.
#[cfg(all(target_os = "linux", feature = "kernel-sockets"))]
fn from_kernel(ours: SocketAddr, theirs: SocketAddr) -> Option<FarEnd> {
    netlink::far_end(ours, theirs)
}

#[cfg(all(target_os = "linux", not(feature = "kernel-sockets")))]
fn from_kernel(_ours: SocketAddr, _theirs: SocketAddr) -> Option<FarEnd> {
    None
}

/// Whether one of this process's files is this socket.
#[cfg(target_os = "linux")]
fn holds(inode: u64) -> Option<bool> {
    let name = format!("socket:[{inode}]");
    let mut files = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
    Some(files.any(|file| {
        std::fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == name.as_str())
    }))
}

/// An IPv4 address within IPv6 is that address.
#[cfg(target_os = "linux")]
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};

    /// Asked for and looked for in the list, it is the same.
    fn both_ways(taken: &TcpStream) -> Option<FarEnd> {
        let (ours, theirs) = (
            plain(taken.local_addr().ok()?),
            plain(taken.peer_addr().ok()?),
        );
        let listed = proc_net::far_end(ours, theirs);
        // Not every kernel can be asked.
        assert!(
            from_kernel(ours, theirs).is_none_or(|asked| Some(asked) == listed),
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
            let (taken, _) = listener.accept().await.unwrap();
            assert!(matches!(both_ways(&taken), Some(FarEnd::Here(_))));
            assert_eq!(held_here(&taken), Some(true));
            drop(client);
            assert_eq!(held_here(&taken), Some(false));
        }
    }

    #[tokio::test]
    async fn an_address_within_the_other_family_is_the_same_address() {
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
        let (taken, _) = listener.accept().await.unwrap();
        assert!(matches!(both_ways(&taken), Some(FarEnd::Here(_))));
        assert_eq!(held_here(&taken), Some(true));
    }

    #[tokio::test]
    async fn who_listens_is_not_who_has_connected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let other = SocketAddr::new(address.ip(), 1);
        assert_eq!(from_kernel(other, address), None);
        assert_eq!(proc_net::far_end(other, address), None);
    }
}
