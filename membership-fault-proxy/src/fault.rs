//! What can go wrong between a client and its server.

use std::fmt;
use std::time::Duration;

/// How long the server must be silent before its answer is taken to be complete, if a cut is due
/// at its end or after it.
pub const QUIET: Duration = Duration::from_millis(30);

/// Where in an exchange (a request and its answer) the connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// At the first byte of the request: nothing reaches the server.
    BeforeRequest,
    /// When a part of the request has been sent to the server.
    WithinRequest,
    /// When the server has the whole request and begins to answer: the request is carried out, and
    /// the client receives nothing.
    AfterRequest,
    /// When the client has a part of the answer.
    WithinAnswer,
    /// When the client has all of the answer but its last byte: after [`QUIET`].
    BeforeLastByte,
    /// When the client has the whole answer: at its next request, or after [`QUIET`].
    AfterAnswer,
}

impl Stage {
    /// Every stage, from first to last.
    pub const ALL: [Self; 6] = [
        Self::BeforeRequest,
        Self::WithinRequest,
        Self::AfterRequest,
        Self::WithinAnswer,
        Self::BeforeLastByte,
        Self::AfterAnswer,
    ];
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::BeforeRequest => "before the request",
            Self::WithinRequest => "within the request",
            Self::AfterRequest => "after the request",
            Self::WithinAnswer => "within the answer",
            Self::BeforeLastByte => "before the last byte of the answer",
            Self::AfterAnswer => "after the answer",
        })
    }
}

/// What happens to one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Its connection is cut.
    Cut(Stage),
    /// Its request is delivered and its answer discarded, as is everything that the server sends on
    /// that connection afterwards. The connection stays open, so only the client's own timeout ends
    /// the wait.
    LoseAnswer,
    /// From its request on, nothing reaches a server until the proxy is thawed or healed. Then
    /// everything arrives, late.
    HoldRequest,
    /// Its request is delivered; from its answer on, nothing reaches the client until the proxy is
    /// thawed or healed.
    HoldAnswer,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut(stage) => write!(f, "cut {stage}"),
            Self::LoseAnswer => f.pad("the answer lost"),
            Self::HoldRequest => f.pad("the request held"),
            Self::HoldAnswer => f.pad("the answer held"),
        }
    }
}

/// One of the two directions through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Answers,
}

/// How a server is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Away {
    /// Nothing listens: connecting is refused.
    Refused,
    /// Connections are accepted, and cut at once.
    Cut,
}
