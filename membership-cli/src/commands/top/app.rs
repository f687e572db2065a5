//! What `top` shows: rows, the chosen one, the time line, and what the user is about to do.

use std::collections::VecDeque;

use membership::admin::ChangeError;
use membership::intent::Refusal;
use membership_core::{ClusterView, MembershipEntry, SiloAddress, SiloStatus, WallTime};

use crate::clock;
use crate::commands::{watch, why};
use crate::inspect::Inspection;
use crate::out::Out;
use crate::rows::{Filter, Sort};
use crate::text::clean;

/// How many changes the time line keeps.
const CHANGES: usize = 1_000;

/// What the keys do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Rows,
    /// The chosen silo in full, from this line on.
    Detail(u16),
    /// The changes seen, this many of the last left out.
    Times(usize),
    /// A filter is typed.
    Filter(String),
    /// Why a silo is evicted is typed.
    Reason(SiloAddress, String),
    /// `yes` is typed.
    Confirm(SiloAddress, String, String),
    Help,
}

/// What the user wants, beyond what is on the screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    /// Stand still until the shell lets it go on.
    Pause,
    Evict(SiloAddress, String),
}

/// One change, for the time line.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub text: String,
    pub died: bool,
}

pub(super) struct App {
    pub cluster: String,
    pub store: String,
    pub colour: bool,
    pub inspection: Option<Inspection>,
    /// Why the table cannot be read now.
    pub trouble: Option<String>,
    /// How the last thing that the user did ended.
    pub message: Option<String>,
    pub now: WallTime,
    pub sort: Sort,
    pub reversed: bool,
    pub filter: Filter,
    /// The filter as it was typed.
    pub typed: String,
    pub mode: Mode,
    /// The rows that are shown, in order.
    pub shown: Vec<SiloAddress>,
    pub chosen: Option<SiloAddress>,
    /// Until the user chooses a silo, it is the first one.
    pub has_chosen: bool,
    /// How many rows fit on the screen; set when it is drawn.
    pub page: usize,
    pub changes: VecDeque<Change>,
}

impl App {
    pub fn new(cluster: String, store: String, colour: bool) -> Self {
        Self {
            cluster,
            store,
            colour,
            inspection: None,
            trouble: None,
            message: None,
            now: clock::wall(),
            sort: Sort::default(),
            reversed: false,
            filter: Filter::default(),
            typed: String::new(),
            mode: Mode::Rows,
            shown: Vec::new(),
            chosen: None,
            has_chosen: false,
            page: 10,
            changes: VecDeque::new(),
        }
    }

    pub fn on_table(&mut self, inspection: Inspection) {
        self.now = inspection.now;
        if self.trouble.take().is_some() {
            self.note(
                format!("{} the table is available again", time(inspection.now)),
                false,
            );
        }
        if let Some(known) = &self.inspection
            && known.snapshot.version() != inspection.snapshot.version()
        {
            let (new, old) = (
                ClusterView::new(inspection.snapshot.clone()),
                ClusterView::new(known.snapshot.clone()),
            );
            for change in new.changes_since(&old) {
                let text = format!(
                    "{} v{} {}",
                    time(inspection.now),
                    new.version(),
                    watch::describe(&change)
                );
                self.note(text, change.entry.status == SiloStatus::Dead);
            }
        }
        self.inspection = Some(inspection);
        self.arrange();
    }

    pub fn on_trouble(&mut self, error: String) {
        let error = clean(&error);
        if self.trouble.is_none() {
            self.note(
                format!("{} the table is unavailable: {error}", time(clock::wall())),
                true,
            );
        }
        self.trouble = Some(error);
    }

    pub fn on_evicted(
        &mut self,
        silo: SiloAddress,
        done: Result<Option<u64>, ChangeError<Refusal>>,
    ) {
        self.message = Some(match done {
            Ok(Some(version)) => format!("{silo} is Dead (evicted) as of version {version}"),
            Ok(None) => format!("{silo} is already Dead"),
            Err(ChangeError::MayHaveHappened(error)) => format!(
                "{silo} may be evicted, or may yet be: look at its row before you try again ({})",
                clean(&error.to_string())
            ),
            Err(error) => format!("{silo} was not evicted: {}", clean(&error.to_string())),
        });
    }

    fn note(&mut self, text: String, died: bool) {
        if self.changes.len() == CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(Change { text, died });
    }

    /// Chooses and sorts the rows anew. The chosen silo stays chosen.
    pub fn arrange(&mut self) {
        let Some(inspection) = &self.inspection else {
            return;
        };
        let before = self.place();
        let rows = inspection.snapshot.rows.entries();
        let mut rows: Vec<_> = rows.filter(|e| self.filter.matches(e)).collect();
        self.sort.order(&mut rows, inspection);
        if self.reversed {
            rows.reverse();
        }
        self.shown = rows.into_iter().map(|e| e.address).collect();
        if !self.has_chosen {
            self.chosen = self.shown.first().copied();
        } else if self.place().is_none() {
            let at = before.unwrap_or(0).min(self.shown.len().saturating_sub(1));
            self.chosen = self.shown.get(at).copied();
        }
    }

    /// Where the chosen silo stands.
    pub fn place(&self) -> Option<usize> {
        let chosen = self.chosen?;
        self.shown.iter().position(|silo| *silo == chosen)
    }

    pub fn entry(&self, silo: &SiloAddress) -> Option<&MembershipEntry> {
        self.inspection.as_ref()?.snapshot.rows.get(silo)
    }

    /// Everything that is known of the chosen silo.
    pub fn detail(&self) -> String {
        let entry = self.chosen.as_ref().and_then(|silo| self.entry(silo));
        match (entry, &self.inspection) {
            (Some(entry), Some(inspection)) => {
                Out::text(|out| why::explain(entry, inspection, out))
            }
            _ => "Its row is gone.".to_owned(),
        }
    }

    pub fn move_by(&mut self, rows: isize) {
        if self.shown.is_empty() {
            return;
        }
        self.has_chosen = true;
        let at = self.place().unwrap_or(0).saturating_add_signed(rows);
        self.chosen = self.shown.get(at.min(self.shown.len() - 1)).copied();
    }
}

/// The time of day, in UTC.
fn time(at: WallTime) -> String {
    at.to_string().chars().skip(11).take(8).collect()
}
