//! Where the other end of a connection is.

/// Where the other end of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FarEnd {
    /// In this machine's network: the socket with this inode number.
    Here(u64),
    /// On another machine, in another network, or closed already.
    Elsewhere,
}
