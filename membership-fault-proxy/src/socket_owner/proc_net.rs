//! Searches the kernel's list of all sockets, where the kernel cannot be asked for a single one.
//! Slow with thousands of connections; those that were closed within the last minute count too.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::far_end::FarEnd;

/// The kernel lists sockets in pieces, so the list may miss one while others open and close.
const ATTEMPTS: usize = 4;

/// One entry of the list: the two addresses, and the inode number of the socket.
struct Listed {
    local: SocketAddr,
    remote: SocketAddr,
    inode: u64,
}

/// The other end of the connection of which `local` is one end. None where there is no list of this
/// connection's network.
pub(super) fn far_end(local: SocketAddr, remote: SocketAddr) -> Option<FarEnd> {
    let mut seen = false;
    for _ in 0..ATTEMPTS {
        for file in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
            let Ok(text) = fs::read_to_string(file) else {
                continue;
            };
            for socket in text.lines().filter_map(listed) {
                if socket.local == remote && socket.remote == local {
                    return Some(FarEnd::Here(socket.inode));
                }
                // The local end is in the list, so it is the list of this connection's network.
                seen |= socket.local == local && socket.remote == remote;
            }
        }
    }
    // The local end is in the list and the other one is not: it is on another machine, in another
    // network, or closed already.
    seen.then_some(FarEnd::Elsewhere)
}

/// One line: its number, the two addresses, the state, queues, timers, the user, and then the inode
/// number.
fn listed(line: &str) -> Option<Listed> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
    Some(Listed {
        local,
        remote,
        inode: fields.nth(6)?.parse().ok()?,
    })
}

/// `0100007F:1F90`: the address in groups of four bytes, each in this machine's byte order, and the
/// port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let group = |at: usize| {
        Some(
            u32::from_str_radix(ip.get(at..at + 8)?, 16)
                .ok()?
                .to_ne_bytes(),
        )
    };
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(group(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (n, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&group(8 * n)?);
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
        assert_eq!(
            (socket.local.to_string(), socket.remote.to_string()),
            ("127.0.0.1:8080".to_owned(), "127.0.0.2:22".to_owned())
        );
        assert_eq!(socket.inode, 4711);
        assert_eq!(
            address("00000000000000000000000001000000:0050")
                .unwrap()
                .to_string(),
            "[::1]:80"
        );
        assert_eq!(
            address("0000000000000000FFFF00000100007F:0050")
                .unwrap()
                .to_string(),
            "127.0.0.1:80"
        );
        assert!(listed("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode").is_none());
    }
}
