//! One socket, asked for by its two ends: as cheap with ten thousand connections as with one. `sock_diag(7)`.

use std::net::SocketAddr;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};

use super::far_end::FarEnd;

/// Any socket with these ends, whichever it is.
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// An answer is one socket, in much less than that.
const ANSWER: usize = 8_192;

/// The other end of the connection of which `ours` is one, seen from this machine's network. None where the kernel does not answer, or does
/// not know our own end either: not every one can be asked.
pub(super) fn far_end(ours: SocketAddr, theirs: SocketAddr) -> Option<FarEnd> {
    let kernel = Socket::new(NETLINK_SOCK_DIAG).ok()?;
    kernel.connect(&NetlinkAddr::new(0, 0)).ok()?;
    match inode(&kernel, theirs, ours) {
        Some(inode) => Some(FarEnd::Here(inode)),
        None => inode(&kernel, ours, theirs).map(|_| FarEnd::Elsewhere),
    }
}

/// The number of the socket that has `local` as its own address and `remote` as that of the other one.
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
    // Where nothing has these ends, the kernel answers with whoever listens at the first of them.
    let id = found.header.socket_id;
    let is_it = id.destination_port == remote.port()
        && id.destination_address.to_canonical() == remote.ip();
    is_it.then(|| found.header.inode.into())
}
