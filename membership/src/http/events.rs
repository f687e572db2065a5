//! `/api/v1/events`: what happens from now on, as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use membership_core::protocol::{NotReached, Termination, Unreached};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::Site;
use super::answer::{Problem, text_of};
use super::guard::Shown;
use super::health::table_word;
use super::journal::{Journal, Next};
use super::query::Query;
use crate::{Event, EventKind};

/// A stream without an event has a comment so often, by which each side finds out that the other is
/// gone.
const QUIET: Duration = Duration::from_secs(15);
/// What a client waits before it connects again, in milliseconds.
const RETRY: &[u8] = b"retry: 1000\n\n";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// One client.
struct Client {
    journal: Arc<Journal>,
    newest: watch::Receiver<u64>,
    first: VecDeque<Bytes>,
    next: u64,
    cut: bool,
    /// None where nobody needs a token.
    shown: Option<Shown>,
    _permit: OwnedSemaphorePermit,
}

pub(super) async fn events(
    State(site): State<Arc<Site>>,
    shown: Option<Extension<Shown>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::of(&uri, &["last_event_id"])?;
    let header = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    let last = header.or(query.get("last_event_id"));
    // A client that was cut off by the end of the silo may still get what it missed.
    if last.is_none() {
        site.check_running()?;
    }
    let permit = site.room.streams.take()?;
    let newest = site.journal.watch();
    let mut start = site.journal.begin(last);
    start.first.push_front(Bytes::from_static(RETRY));
    let client = Client {
        journal: site.journal.clone(),
        newest,
        first: start.first,
        next: start.next,
        cut: false,
        shown: shown.map(|Extension(shown)| shown),
        _permit: permit,
    };
    let chunks = stream::unfold(client, |mut client| async {
        let chunk = client.chunk().await?;
        Some((Ok::<_, Infallible>(chunk), client))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

impl Client {
    /// The next piece of the stream; none at its end. The server asks when the last piece is on its
    /// way.
    async fn chunk(&mut self) -> Option<Bytes> {
        if self.cut {
            return None;
        }
        if let Some(chunk) = self.first.pop_front() {
            return Some(chunk);
        }
        loop {
            // A token may be taken back while the stream runs.
            if self.shown.as_ref().is_some_and(|shown| !shown.is_enough()) {
                return None;
            }
            self.newest.mark_unchanged();
            match self.journal.next(self.next) {
                Next::Event(frame) => {
                    self.next += 1;
                    return Some(frame);
                }
                Next::Missed(events) => {
                    self.cut = true;
                    return Some(missed(events));
                }
                Next::End => return None,
                Next::Wait => {}
            }
            let changed = tokio::time::timeout(QUIET, self.newest.changed()).await;
            if changed.is_err() {
                return Some(Bytes::from_static(b": \n\n"));
            }
        }
    }
}

/// The last event of a client that read too slowly. It has no id: with that of the event before, the
/// client begins again with the whole view.
fn missed(events: u64) -> Bytes {
    let data = text_of(&json!({
        "events": events,
        "message": "this client read too slowly and is cut off: connect again for the whole view",
    }));
    let mut frame = b"event: missed\ndata: ".to_vec();
    frame.extend_from_slice(&data);
    frame.extend_from_slice(b"\n\n");
    frame.into()
}

/// What the event is called: as in the lines of `membership silo --json`, where it has one.
pub(super) const fn word(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Joining { .. } => "row_inserted",
        EventKind::JoinProgress(_) => "joining",
        EventKind::Active { .. } => "active",
        EventKind::ViewPublished { .. } => "view_published",
        EventKind::Suspected { .. } => "suspected",
        EventKind::VoteWritten { .. } => "vote_written",
        EventKind::VoteReceived { .. } => "vote_received",
        EventKind::Table { .. } => "table",
        EventKind::ViewWithdrawn { .. } => "view_withdrawn",
        EventKind::PartialPartition { .. } => "partial_partition",
        EventKind::Unanswered { .. } => "unanswered",
        EventKind::Suspended => "suspended",
        EventKind::Resumed => "resumed",
        EventKind::HealthChanged { .. } => "health",
        EventKind::Leaving { .. } => "leaving",
        EventKind::Ended(_) => "terminated",
        EventKind::Missed { .. } => "silo_missed",
    }
}

/// The event with its time, its version and what belongs to its kind.
pub(super) fn as_json(event: &Event) -> Value {
    let mut value = details(&event.kind);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("at".to_owned(), json!(event.at));
        fields
            .entry("version")
            .or_insert_with(|| json!(event.version));
    }
    value
}

fn details(kind: &EventKind) -> Value {
    match kind {
        EventKind::Joining { silo } | EventKind::Active { silo } => json!({ "silo": silo }),
        EventKind::JoinProgress(progress) => {
            let unreached: Vec<Value> = progress.unreached.iter().map(unreached).collect();
            let elapsed = u64::try_from(progress.elapsed.as_millis()).unwrap_or(u64::MAX);
            json!({"elapsed_ms": elapsed, "waiting_for": progress.waiting_for, "unreached": unreached})
        }
        EventKind::ViewPublished { members, active } => {
            json!({"members": members, "active": active})
        }
        EventKind::Suspected { peer, misses } => json!({"peer": peer, "misses": misses}),
        EventKind::VoteWritten { suspect } => json!({ "suspect": suspect }),
        EventKind::VoteReceived { accuser } => json!({ "accuser": accuser }),
        EventKind::Table { state, error } => {
            let error = error.as_ref().map(ToString::to_string);
            json!({"state": table_word(*state), "error": error})
        }
        EventKind::ViewWithdrawn { announced } => json!({ "announced": announced }),
        EventKind::PartialPartition { unreached } => {
            let unreached: Vec<Value> = unreached.iter().map(not_reached).collect();
            json!({ "unreached": unreached })
        }
        EventKind::Unanswered { silos } => json!({ "silos": silos }),
        EventKind::Suspended | EventKind::Resumed => json!({}),
        EventKind::HealthChanged { score, local } => json!({"score": score, "local": local}),
        EventKind::Leaving { written } => json!({ "written": written }),
        EventKind::Ended(end) => terminated(end),
        EventKind::Missed { events } => json!({ "events": events }),
    }
}

fn unreached(one: &Unreached) -> Value {
    json!({
        "silo": one.silo,
        "i_reach_it": one.i_reach_it,
        "it_reaches_me": one.it_reaches_me,
        "last_error": one.last_error,
    })
}

fn not_reached(one: &NotReached) -> Value {
    let call = one.roll_call;
    json!({
        "silo": one.silo,
        "asked": call.asked,
        "failed": call.failed,
        "reached": call.reached,
        "silent": call.silent,
    })
}

fn terminated(end: &Termination) -> Value {
    let (cause, votes) = match end {
        Termination::Left { .. } => ("left", None),
        Termination::DeclaredDead(dead) => (dead.cause(), Some(&dead.votes)),
        Termination::Unreachable { .. } => ("unreachable", None),
        Termination::JoinFailed(_) => ("join_failed", None),
        Termination::Panicked { .. } => ("panicked", None),
        _ => ("unknown", None),
    };
    let votes = votes.map(Vec::as_slice).unwrap_or_default();
    json!({"cause": cause, "reason": end.to_string(), "votes": votes})
}
