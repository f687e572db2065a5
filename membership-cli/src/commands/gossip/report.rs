//! What a member says on standard output: lines of text, or of JSON.

use membership::SiloAddress;
use membership::gossip::{
    ArbiterAnswer, Decided, EventKind, GossipView, MemberStatus, Termination, Waiting,
};
use serde_json::{Value, json};

use crate::clock;
use crate::events;
use crate::printer::Printer;
use crate::text::{clean, count};

pub(super) struct Report {
    printer: Printer,
    json: bool,
    last: Option<GossipView>,
}

/// A view as an object: every member with its status, and whether all reach it.
pub(super) fn view_as_json(view: &GossipView) -> Value {
    let flags = view.reachability();
    let members: Vec<Value> = view
        .members()
        .map(|member| {
            let address = member.address();
            json!({
                "silo": address, "status": member.status().name(), "name": member.info().silo_name,
                "role": member.info().role, "zone": member.info().zone, "data_center": member.data_centre(),
                "unreachable_for": flags.get(&address).into_iter().flatten().collect::<Vec<_>>(),
            })
        })
        .collect();
    let blocked = view.blocked_by();
    let unreachable: Vec<_> = blocked.unreachable.iter().map(|(who, _)| who).collect();
    json!({
        "event": "view", "version": view.version().to_string(), "founding": view.founding().map(|id| id.to_string()),
        "silo": view.me(), "leader": view.leader(), "converged": view.converged(),
        "blocked_by": {"unseen": blocked.unseen, "unreachable": unreachable}, "members": members,
    })
}

/// What a process waits for, as an object.
pub(super) fn waiting_as_json(waiting: &Waiting) -> Value {
    let silent = waiting.silent.iter();
    let silent: Vec<Value> = silent
        .map(|point| json!({"contact_point": point.contact_point, "reason": point.reason}))
        .collect();
    json!({
        "event": "waiting", "elapsed_ms": u64::try_from(waiting.elapsed.as_millis()).unwrap_or(u64::MAX),
        "answered": waiting.answered, "silent": silent, "of": waiting.contact_points(),
        "needed": waiting.needed, "asked": waiting.asked,
    })
}

/// A decision with what it rests on.
fn decided_as_json(decided: &Decided) -> Value {
    let decision = &decided.decision;
    let mut event = json!({
        "event": "decided", "strategy": decided.strategy.name(), "verdict": decision.verdict.as_str(),
        "down": decision.down, "reached": decision.reached, "unreached": decision.unreached,
        "indirect": decision.indirect,
    });
    if let (Some(answer), Some(fields)) = (&decided.arbiter, event.as_object_mut()) {
        let reason = match answer {
            ArbiterAnswer::Silent { reason } => Some(reason),
            _ => None,
        };
        let answer = json!({"answer": answer.as_str(), "reason": reason});
        fields.insert("arbiter".to_owned(), answer);
    }
    event
}

fn decided_as_text(decided: &Decided) -> String {
    let decision = &decided.decision;
    let down: Vec<String> = decision.down.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "the resolver downs {}: {} by {}, {} reached, {} not",
        listed(&down),
        decision.verdict.as_str(),
        decided.strategy.name(),
        decision.reached,
        decision.unreached,
    );
    if !decision.indirect.is_empty() {
        let indirect: Vec<String> = decision.indirect.iter().map(ToString::to_string).collect();
        text.push_str(&format!(", by some only: {}", listed(&indirect)));
    }
    if let Some(answer) = &decided.arbiter {
        text.push_str(&format!("; the arbiter: {answer}"));
    }
    text
}

/// What keeps members from agreeing, for people.
pub(super) fn agreement(view: &GossipView) -> String {
    if view.converged() {
        return "agreed".to_owned();
    }
    let blocked = view.blocked_by();
    let mut parts = Vec::new();
    if !blocked.unreachable.is_empty() {
        let one = |(who, by): &(SiloAddress, SiloAddress)| format!("{who} (says {by})");
        let who: Vec<String> = blocked.unreachable.iter().map(one).collect();
        parts.push(format!("unreachable: {}", listed(&who)));
    }
    if !blocked.unseen.is_empty() {
        let who: Vec<String> = blocked.unseen.iter().map(ToString::to_string).collect();
        parts.push(format!("not yet seen by {}", listed(&who)));
    }
    format!("not agreed: {}", parts.join("; "))
}

/// At most this many members are named in a line.
const MAX_NAMES: usize = 8;

fn listed(names: &[String]) -> String {
    match names.len().checked_sub(MAX_NAMES) {
        Some(more @ 1..) => format!("{}, and {more} more", names[..MAX_NAMES].join(", ")),
        _ => names.join(", "),
    }
}

impl Report {
    pub(super) const fn new(printer: Printer, json: bool) -> Self {
        Self {
            printer,
            json,
            last: None,
        }
    }

    pub(super) fn finish(self, quickly: bool) {
        self.printer.finish(quickly);
    }

    fn line(&self, event: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        if self.json {
            self.printer.line(events::timed(event()));
        } else {
            let text = clean(&text());
            self.printer.line(format_args!("{}  {text}", clock::wall()));
        }
    }

    pub(super) fn joining(&self, me: SiloAddress) {
        self.line(
            || json!({"event": "joining", "silo": me}),
            || format!("{me} asks the contact points"),
        );
    }

    pub(super) fn event(&self, event: &EventKind) {
        match event {
            EventKind::ContactFailed {
                contact_point,
                reason,
            } => self.line(
                || json!({"event": "contact", "contact_point": contact_point, "reason": reason}),
                || format!("cannot reach the contact point {contact_point}: {reason}"),
            ),
            EventKind::NotTakenIn { by, reason } => self.line(
                || json!({"event": "not_taken_in", "by": by, "reason": reason.to_string()}),
                || format!("{by} did not take it in: {reason}"),
            ),
            EventKind::Founded { founding } => self.line(
                || json!({"event": "founded", "founding": founding.to_string()}),
                || format!("founded a cluster ({founding})"),
            ),
            EventKind::Welcomed { by } => self.line(
                || json!({"event": "welcomed", "by": by}),
                || format!("taken in by {by}"),
            ),
            EventKind::Active { member, status } => self.line(
                || json!({"event": "active", "silo": member, "status": status.name()}),
                || format!("{member} is {status}"),
            ),
            EventKind::Decided(decided) => {
                self.line(|| decided_as_json(decided), || decided_as_text(decided));
            }
            EventKind::Downed { member } => self.line(
                || json!({"event": "downed", "silo": member}),
                || format!("{member} was downed"),
            ),
            EventKind::Removed { member, before } => self.line(
                || json!({"event": "removed", "silo": member, "before": before.name()}),
                || format!("{member} is no member any more; it was {before}"),
            ),
            EventKind::DownAsked { member, from } => self.line(
                || json!({"event": "down_asked", "silo": member, "from": from}),
                || match from {
                    Some(from) => format!("an operator at {from} downs {member}"),
                    None => format!("an operator downs {member}"),
                },
            ),
            EventKind::Waiting(waiting) => self.line(
                || waiting_as_json(waiting),
                || format!("in no cluster yet: {waiting}"),
            ),
            EventKind::LinkBroken { to } => self.line(
                || json!({"event": "link_broken", "to": to}),
                || format!("{to} answers others and not this member: the link is broken"),
            ),
            EventKind::Paused(pause) => self.line(
                || json!({"event": "paused", "ms": u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)}),
                || format!("this process was paused for {pause:?}"),
            ),
            EventKind::Exiting => self.line(
                || json!({"event": "exiting"}),
                || "exiting: all know that it leaves".to_owned(),
            ),
            _ => {}
        }
    }

    pub(super) fn view(&mut self, view: &GossipView) {
        self.line(
            || view_as_json(view),
            || {
                let changes: Vec<String> = match &self.last {
                    Some(last) => view
                        .changes_since(last)
                        .iter()
                        .map(|change| format!("{} is {}", change.member.address(), change.now))
                        .collect(),
                    None => {
                        let up = view.members().filter(|m| m.status() == MemberStatus::Up);
                        vec![format!(
                            "{}, {} up",
                            count(view.members().count(), "member"),
                            up.count()
                        )]
                    }
                };
                let changes = match changes.is_empty() {
                    true => String::new(),
                    false => format!("{}; ", listed(&changes)),
                };
                format!("{changes}{}", agreement(view))
            },
        );
        self.last = Some(view.clone());
    }

    pub(super) fn leaving(&self) {
        self.line(|| json!({"event": "leaving"}), || "leaving".to_owned());
    }

    pub(super) fn stopped(&self) {
        self.line(
            || json!({"event": "terminated", "cause": "stopped"}),
            || "stopped".to_owned(),
        );
    }

    /// For people, the error that the program ends with says it.
    pub(super) fn refused(&self, why: &str) {
        if self.json {
            let event = json!({"event": "terminated", "cause": "not_started", "reason": why});
            self.printer.line(events::timed(event));
        }
    }

    pub(super) fn terminated(&self, end: &Termination) {
        self.line(
            || json!({"event": "terminated", "cause": end.as_str(), "reason": end.to_string()}),
            || end.to_string(),
        );
    }
}
