//! Where the other end of a connection is.

/// Where the other end of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FarEnd {
    /// In this machine's network, as the socket of this number.
    Here(u64),
    /// On another machine, in another network, or gone already.
    Elsewhere,
}
