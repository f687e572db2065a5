//! Whose the other end of a connection is: that of this process, where the tables under test live, or somebody else's.
//!
//! Servers that were told to advertise a proxy also reach each other through it. The proxy speaks no protocol, and a server's link looks
//! like a client's; but the sockets of this process are known to it, and a server is another process. Looked up once, when a connection
//! is taken, because the other end cannot change hands.

use tokio::net::TcpStream;

/// Whether the other end is a socket of this process. None where that cannot be found out: on systems without `/proc`.
pub(super) fn held_here(connection: &TcpStream) -> Option<bool> {
    let (ours, theirs) = (connection.local_addr().ok()?, connection.peer_addr().ok()?);
    table::held_here(ours, theirs)
}

#[cfg(not(target_os = "linux"))]
mod table {
    use std::net::SocketAddr;

    pub(super) fn held_here(_ours: SocketAddr, _theirs: SocketAddr) -> Option<bool> {
        None
    }
}

#[cfg(target_os = "linux")]
mod table {
    use std::fs;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    /// The kernel lists sockets piece by piece: one may be missed while others come and go.
    const LOOKS: usize = 4;

    /// What the kernel lists: who, with whom, and the number of the socket.
    struct Listed {
        local: SocketAddr,
        remote: SocketAddr,
        inode: u64,
    }

    pub(super) fn held_here(ours: SocketAddr, theirs: SocketAddr) -> Option<bool> {
        let (ours, theirs) = (plain(ours), plain(theirs));
        let mut seen = false;
        for _ in 0..LOOKS {
            for file in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
                let Ok(text) = fs::read_to_string(file) else { continue };
                for socket in text.lines().filter_map(listed) {
                    if socket.local == theirs && socket.remote == ours {
                        return holds(socket.inode);
                    }
                    // Our own end: the list is one of this connection's network.
                    seen |= socket.local == ours && socket.remote == theirs;
                }
            }
        }
        // Our end is there and the other one is not: on another machine, in another network, or gone already.
        seen.then_some(false)
    }

    /// Whether one of this process's files is this socket.
    fn holds(inode: u64) -> Option<bool> {
        let name = format!("socket:[{inode}]");
        let mut files = fs::read_dir("/proc/self/fd").ok()?.flatten();
        Some(files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == name.as_str())))
    }

    /// An IPv4 address within IPv6 is that address.
    fn plain(address: SocketAddr) -> SocketAddr {
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    /// One line: its number, the two addresses, the state, queues, timers, the user, and then the inode.
    fn listed(line: &str) -> Option<Listed> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (address(words.next()?)?, address(words.next()?)?);
        Some(Listed { local, remote, inode: words.nth(6)?.parse().ok()? })
    }

    /// `0100007F:1F90`: the bytes of the address by the word, each as this machine reads it; the port as a number.
    fn address(text: &str) -> Option<SocketAddr> {
        let (ip, port) = text.split_once(':')?;
        let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
        let ip: IpAddr = match ip.len() {
            8 => Ipv4Addr::from(word(0)?).into(),
            32 => {
                let mut bytes = [0; 16];
                for (n, four) in bytes.chunks_exact_mut(4).enumerate() {
                    four.copy_from_slice(&word(8 * n)?);
                }
                Ipv6Addr::from(bytes).to_canonical()
            }
            _ => return None,
        };
        Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
    }

    #[cfg(all(test, target_endian = "little"))]
    mod tests {
        use super::*;

        #[test]
        fn a_line_of_the_kernel_is_understood() {
            let line = "   1: 0100007F:1F90 0200007F:0016 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 20 4 30 10 -1";
            let socket = listed(line).unwrap();
            assert_eq!((socket.local.to_string(), socket.remote.to_string()), ("127.0.0.1:8080".to_owned(), "127.0.0.2:22".to_owned()));
            assert_eq!(socket.inode, 4711);
            assert_eq!(address("00000000000000000000000001000000:0050").unwrap().to_string(), "[::1]:80");
            assert_eq!(address("0000000000000000FFFF00000100007F:0050").unwrap().to_string(), "127.0.0.1:80");
            assert!(listed("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode").is_none());
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_socket_of_this_process_is_known() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // Not every machine has IPv6.
            let Ok(listener) = TcpListener::bind(address).await else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (taken, _) = listener.accept().await.unwrap();
            assert_eq!(held_here(&taken), Some(true));
            drop(client);
            assert_eq!(held_here(&taken), Some(false));
        }
    }
}
