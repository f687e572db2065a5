//! What can go wrong between a client and its server.

use std::fmt;
use std::time::Duration;

/// For how long nothing must come from the server before its answer is taken to be over, where a cut is due after it.
pub const QUIET: Duration = Duration::from_millis(30);

/// Where in a flight (a request and its answer) the connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// At the first byte of the request: nothing reaches the server.
    BeforeRequest,
    /// When a part of the request has been sent to the server.
    WithinRequest,
    /// When the server has the whole request and begins to answer: it was carried out, and the client hears nothing.
    AfterRequest,
    /// When the client has a part of the answer.
    WithinAnswer,
    /// When the client has the whole answer: at its next word, or after [`QUIET`] without one.
    AfterAnswer,
}

impl Stage {
    /// Every stage, from first to last.
    pub const ALL: [Self; 5] = [
        Self::BeforeRequest,
        Self::WithinRequest,
        Self::AfterRequest,
        Self::WithinAnswer,
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
            Self::AfterAnswer => "after the answer",
        })
    }
}

/// What happens to one flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Its connection is cut.
    Cut(Stage),
    /// Its request is delivered and its answer thrown away, as is everything the server says on that connection from then on; the
    /// connection stays open, so only the client's own patience ends it.
    LoseAnswer,
    /// From its request on, nothing reaches a server until the proxy is thawed or healed; then everything does, late.
    HoldRequest,
    /// Its request is delivered; from its answer on, nothing reaches the client until the proxy is thawed or healed.
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

/// One of the two ways through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Answers,
}

/// How a server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Away {
    /// Nobody listens: connecting is refused.
    Refused,
    /// Somebody listens, and cuts every connection at once.
    Cut,
}
