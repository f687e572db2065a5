//! Asks the kernel for one socket by its two addresses (`sock_diag(7)`). The cost does not depend
//! on the number of connections.

use std::net::SocketAddr;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};

use super::far_end::FarEnd;

/// Matches any socket with these addresses.
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// An answer describes one socket, in much less than that.
const ANSWER: usize = 8_192;

/// The other end of the connection of which `local` is one end, seen from this machine's network.
/// None where the kernel does not answer, or does not know the local end either.
pub(super) fn far_end(local: SocketAddr, remote: SocketAddr) -> Option<FarEnd> {
    let kernel = Socket::new(NETLINK_SOCK_DIAG).ok()?;
    kernel.connect(&NetlinkAddr::new(0, 0)).ok()?;
    match inode(&kernel, remote, local) {
        Some(inode) => Some(FarEnd::Here(inode)),
        None => inode(&kernel, local, remote).map(|_| FarEnd::Elsewhere),
    }
}

/// The inode number of the socket with these two addresses.
fn inode(kernel: &Socket, local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let socket_id = SocketId {
        source_port: local.port(),
        destination_port: remote.port(),
        source_address: local.ip(),
        destination_address: remote.ip(),
        interface_id: 0,
        cookie: NO_COOKIE,
    };
    let request = InetRequest {
        family: if local.is_ipv4() { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id,
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    kernel.send(&bytes, 0).ok()?;
    let mut answer = Vec::with_capacity(ANSWER);
    kernel.recv(&mut answer, 0).ok()?;
    let NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) =
        NetlinkMessage::deserialize(&answer).ok()?.payload
    else {
        return None;
    };
    // If no socket has these addresses, the kernel answers with the one that listens at the first
    // of them.
    let id = found.header.socket_id;
    let same = id.destination_port == remote.port()
        && id.destination_address.to_canonical() == remote.ip();
    same.then(|| found.header.inode.into())
}
