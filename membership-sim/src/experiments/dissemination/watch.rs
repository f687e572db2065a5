//! Sees who learns of one commit, when, and what is sent for it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use membership_core::protocol::{Effect, Message};
use membership_core::{Row, RowChange};
use membership_testing::checks::{Check, Fact};
use membership_testing::{GroundTruth, ProcessId, bytes_on_wire};

/// What one silo has sent for a commit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    /// Messages with changes or rows.
    pub(super) payloads: u64,
    /// Announcements, and questions for changes.
    pub(super) others: u64,
    /// What all of them take.
    pub(super) bytes: u64,
}

/// What became of one commit.
#[derive(Debug, Default)]
pub(super) struct News {
    /// How many rows it changes, and who makes it.
    of: Option<(usize, ProcessId)>,
    /// Its version.
    version: Option<u64>,
    /// What its rows take.
    pub(super) bytes: u64,
    /// When its author knew that it was made.
    pub(super) began: Option<Duration>,
    /// When each process published that version or a later one.
    known: Vec<Option<Duration>>,
    sent: Vec<Sent>,
}

impl News {
    /// Waits for a commit of so many rows by this process.
    pub(super) fn of(rows: usize, author: ProcessId) -> Self {
        Self {
            of: Some((rows, author)),
            ..Self::default()
        }
    }

    /// When this process knew.
    pub(super) fn knows(&self, silo: ProcessId) -> Option<Duration> {
        self.known.get(silo.0).copied().flatten()
    }

    /// What this process sent.
    pub(super) fn sent(&self, silo: ProcessId) -> Sent {
        self.sent.get(silo.0).copied().unwrap_or_default()
    }

    fn see(&mut self, fact: &Fact<'_>, truth: &GroundTruth) {
        let Some((rows, author)) = self.of else {
            return;
        };
        let Some(version) = self.version else {
            if let Fact::Committed { after, request, .. } = fact
                && request.changes.len() == rows
                && request.committer.and_then(|by| truth.owners.get(&by)) == Some(&author)
            {
                self.version = Some(after.version());
                self.bytes = request.changes.iter().map(size).sum();
            }
            return;
        };
        match fact {
            Fact::Published { process, view } if view.version() >= version => {
                let known = at(&mut self.known, *process);
                known.get_or_insert(truth.now);
                if *process == author {
                    self.began.get_or_insert(truth.now);
                }
            }
            Fact::Effect {
                process,
                effect: Effect::Send { header, body, .. },
            } => {
                let sent = match &**body {
                    Message::Delta(delta) | Message::News(delta) if delta.to() >= version => Sent {
                        payloads: 1,
                        ..Sent::default()
                    },
                    Message::Rows { version: to, .. } if *to >= version => Sent {
                        payloads: 1,
                        ..Sent::default()
                    },
                    Message::AskDelta { .. } | Message::Announce { .. } => Sent {
                        others: 1,
                        ..Sent::default()
                    },
                    _ => return,
                };
                let sum = at(&mut self.sent, *process);
                sum.payloads += sent.payloads;
                sum.others += sent.others;
                sum.bytes += bytes_on_wire(header, body);
            }
            _ => {}
        }
    }
}

fn size(change: &RowChange) -> u64 {
    let bytes = match change {
        RowChange::Insert(row) | RowChange::Update(row) => Row::size(row),
        RowChange::Remove(key) => key.len(),
    };
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn at<T: Clone + Default>(all: &mut Vec<T>, silo: ProcessId) -> &mut T {
    if all.len() <= silo.0 {
        all.resize(silo.0 + 1, T::default());
    }
    &mut all[silo.0]
}

/// Shows [`News`] what happens.
pub(super) struct Watch(pub(super) Rc<RefCell<News>>);

impl Check for Watch {
    fn invariant(&self) -> &'static str {
        "news"
    }

    fn observe(&mut self, fact: &Fact<'_>, truth: &GroundTruth) -> Result<(), String> {
        self.0.borrow_mut().see(fact, truth);
        Ok(())
    }
}
