//! What a running silo prints: events as JSON, or lines for people.

use membership::{MonoTime, Silo, TableLine, TableLog};
use membership_core::protocol::{JoinProgress, NotReached, TableState, Termination};
use membership_core::{ClusterView, Discontinuity, SiloAddress, TableError, TableErrorKind};
use serde_json::{Value, json};

use super::watch::describe;
use crate::clock;
use crate::events;
use crate::printer::Printer;
use crate::reach;
use crate::text::{clean, count, reason, span};

pub(crate) struct Report {
    printer: Printer,
    json: bool,
    me: Option<SiloAddress>,
    last: Option<ClusterView>,
    /// Whom it would ask to write its changes.
    scribe: Option<SiloAddress>,
    table: TableLog,
    /// The last one of the table.
    error: Option<TableError>,
}

impl Report {
    pub fn new(printer: Printer, json: bool) -> Self {
        Self {
            printer,
            json,
            me: None,
            last: None,
            scribe: None,
            table: TableLog::default(),
            error: None,
        }
    }

    /// Waits until everything is written, if `quickly` hardly.
    pub fn finish(self, quickly: bool) {
        self.printer.finish(quickly);
    }

    fn line(&self, event: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        if self.json {
            self.printer.line(events::timed(event()));
        } else {
            self.printer
                .line(format_args!("{}  {}", clock::wall(), text()));
        }
    }

    /// Reports where the silo answers HTTP.
    #[cfg(feature = "http")]
    pub fn http(&self, address: std::net::SocketAddr) {
        self.line(
            || json!({"event": "http", "address": address}),
            || format!("answers HTTP at {address}"),
        );
    }

    pub fn joining(&self, progress: &JoinProgress) {
        let unreached = || -> Vec<Value> {
            let one = |u: &membership_core::protocol::Unreached| json!({"silo": u.silo, "i_reach_it": u.i_reach_it, "it_reaches_me": u.it_reaches_me, "last_error": u.last_error});
            progress.unreached.iter().map(one).collect()
        };
        let ms = u64::try_from(progress.elapsed.as_millis()).unwrap_or(u64::MAX);
        self.line(
            || json!({"event": "joining", "elapsed_ms": ms, "waiting_for": progress.waiting_for, "unreached": unreached()}),
            || {
                let who: Vec<String> = progress.unreached.iter().map(ToString::to_string).collect();
                let who = if who.is_empty() { String::new() } else { format!(": {}", who.join("; ")) };
                clean(&format!("joining for {}, waiting for {}{who}", span(progress.elapsed), progress.waiting_for))
            },
        );
    }

    pub fn active(&mut self, silo: &Silo) {
        let me = silo.me();
        self.me = Some(me);
        let view = silo.view();
        let version = view
            .get(&me)
            .and_then(|e| e.active_since)
            .unwrap_or(view.version());
        self.line(
            || json!({"event": "active", "version": version, "silo": me}),
            || format!("{me} is Active as of version {version}"),
        );
    }

    pub fn view(&mut self, view: &ClusterView) {
        self.line(
            || events::view(view),
            || match &self.last {
                Some(last) => {
                    let changes: Vec<String> =
                        view.changes_since(last).iter().map(describe).collect();
                    format!(
                        "version {}: {}",
                        view.version(),
                        if changes.is_empty() {
                            "no silo changed".to_owned()
                        } else {
                            changes.join("; ")
                        }
                    )
                }
                None => format!(
                    "version {}: {} active",
                    view.version(),
                    count(view.active().count(), "silo")
                ),
            },
        );
        let settings = view.snapshot().version_row.settings.workable();
        self.table.heartbeats(settings.i_am_alive_period);
        self.last = Some(view.clone());
    }

    /// Reports the state of the table: each cause once, and that it is available when that lasts.
    pub fn table(&mut self, state: TableState, error: Option<&TableError>, now: MonoTime) {
        let text = error.map(ToString::to_string);
        self.error = error.cloned();
        if let Some(line) = self.table.changed(state, text, now) {
            self.table_line(line);
        }
    }

    /// Reports which silo this one would ask to write its changes, if that is another one than before.
    /// Without the setting `scribe` there is none.
    pub fn scribe(&mut self, scribe: Option<SiloAddress>) {
        if scribe == self.scribe {
            return;
        }
        self.scribe = scribe;
        if let Some(scribe) = scribe {
            self.line(
                || json!({"event": "scribe", "scribe": scribe}),
                || match self.me == Some(scribe) {
                    true => {
                        "this silo writes its changes itself, and those of the silos that ask it"
                            .to_owned()
                    }
                    false => format!("{scribe} writes the changes of this silo"),
                },
            );
        }
    }

    /// Called about once a second.
    pub fn tick(&mut self, now: MonoTime) {
        if let Some(line) = self.table.tick(now) {
            self.table_line(line);
        }
    }

    /// The cause in the store's words, without what a caller of the table does about it.
    fn why(&self, text: &Option<String>) -> String {
        let Some(text) = text else {
            return String::new();
        };
        let error = self.error.as_ref().filter(|e| e.to_string() == *text);
        let cause = error.map_or_else(|| text.clone(), reason);
        format!(": {}", clean(&cause))
    }

    /// The last error says that it is another table; that is looked at again before it counts.
    fn seems_another(&self) -> bool {
        let kind = self.error.as_ref().map(TableError::kind);
        matches!(
            kind,
            Some(TableErrorKind::TableReplaced | TableErrorKind::TableRolledBack)
        )
    }

    fn table_line(&self, line: TableLine) {
        let (state, error) = match line {
            TableLine::Broken(state, error) => (state, error),
            _ => (TableState::Available, None),
        };
        let word = match state {
            TableState::Available => "available",
            TableState::Unavailable => "unavailable",
            TableState::Changed(Discontinuity::Replaced) => TableErrorKind::TableReplaced.as_str(),
            TableState::Changed(Discontinuity::RolledBack) => {
                TableErrorKind::TableRolledBack.as_str()
            }
            TableState::Unusable(kind) => kind.as_str(),
            _ => "unknown",
        };
        self.line(
            || events::table(word, error.as_deref()),
            || match state {
                TableState::Available => "the table is available again".to_owned(),
                TableState::Unavailable if self.seems_another() => format!(
                    "this does not seem to be the table that the silo knows{}: it looks again, over a new connection",
                    self.why(&error)
                ),
                TableState::Unavailable => format!(
                    "the table is unavailable{}. No silo is declared dead until it is back; this one keeps trying",
                    self.why(&error)
                ),
                TableState::Changed(_) => {
                    format!("{word}: this is not the table that the silo knew{}. It writes nothing any more, and admits nobody: restart all silos together", self.why(&error))
                }
                _ => format!("the table cannot be used ({word}){}: run `membership doctor`", self.why(&error)),
            },
        );
    }

    /// Reports that a view that another silo announced is not in the table.
    pub fn withdrawn(&self, announced: u64, version: u64) {
        self.line(
            || json!({"event": "view_withdrawn", "announced": announced, "version": version}),
            || {
                format!(
                    "view {announced} is withdrawn: another silo announced it and the table does not have it; the table has version {version}"
                )
            },
        );
    }

    /// Reports which silos this one does not reach, though others do.
    pub fn reach(&self, unreached: &[NotReached]) {
        self.line(
            || json!({"event": "partial_partition", "unreached": reach::as_json(unreached)}),
            || match unreached {
                [] => "the partial partition has ended: this silo reaches every silo again that others reach".to_owned(),
                some => format!(
                    "a partial partition: this silo does not reach {}; nobody is declared dead for it",
                    reach::listed(some)
                ),
            },
        );
    }

    /// Reports that no other silo answers this one, or that one does again.
    pub fn unanswered(&self, silos: usize) {
        self.line(
            || json!({"event": "unanswered", "silos": silos}),
            || match silos {
                0 => "another silo answers this one again".to_owned(),
                some => format!(
                    "none of {} that this silo probes answers it: it is cut off, or alone. The others may have given it up: then the table says that it is dead, and it stops when it can read that",
                    count(some, "silo")
                ),
            },
        );
    }

    pub fn leaving(&self) {
        self.line(|| json!({"event": "leaving"}), || "leaving".to_owned());
    }

    pub fn stopped(&self) {
        self.line(
            || json!({"event": "terminated", "cause": "stopped", "votes": []}),
            || "stopped".to_owned(),
        );
    }

    pub fn task_ended(&self) {
        self.line(
            || json!({"event": "terminated", "cause": "unknown", "votes": []}),
            || "the silo's task has ended".to_owned(),
        );
    }

    /// For people, the error that the program ends with says it.
    pub fn refused(&self, why: &str) {
        if self.json {
            let event =
                json!({"event": "terminated", "cause": "join_failed", "votes": [], "reason": why});
            self.printer.line(events::timed(event));
        }
    }

    pub fn terminated(&self, end: &Termination) {
        self.line(
            || match end {
                Termination::Left { clean } => json!({"event": "terminated", "cause": "left", "votes": [], "clean": clean}),
                Termination::DeclaredDead(dead) => json!({
                    "event": "terminated", "cause": dead.cause(), "votes": dead.votes, "version": dead.version, "silo": dead.silo,
                    "death": dead.death, "at": dead.at,
                }),
                Termination::Unreachable { why, clean } => {
                    json!({"event": "terminated", "cause": "unreachable", "votes": [], "clean": clean, "reason": why.to_string()})
                }
                Termination::JoinFailed(why) => {
                    json!({"event": "terminated", "cause": "join_failed", "votes": [], "reason": why.to_string()})
                }
                Termination::Panicked { message } => {
                    json!({"event": "terminated", "cause": "panicked", "votes": [], "reason": message})
                }
                _ => json!({"event": "terminated", "cause": "unknown", "votes": []}),
            },
            || match end {
                Termination::DeclaredDead(dead) => match dead.votes.len() {
                    0 => format!("declared dead: {}", dead.cause()),
                    votes => format!("declared dead: {}, {}", dead.cause(), count(votes, "vote")),
                },
                // The error that the program ends with says it.
                Termination::JoinFailed(_) | Termination::Panicked { .. } => "stopped".to_owned(),
                other => other.to_string(),
            },
        );
    }
}
