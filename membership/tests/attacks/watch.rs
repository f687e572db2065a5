//! Looks at silos all the time while something attacks them, and keeps what must never be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::FutureExt;
use membership::protocol::TableState;
use membership::{
    Event, EventKind, Events, FencingToken, MemoryTable, Silo, SiloAddress, SiloStatus, Snapshot,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::cluster::{Member, read};

const PERIOD: Duration = Duration::from_millis(5);
/// So many findings are enough.
const MOST: usize = 10;

/// A watch over some silos: they must stay Active and ready, the table must stay available to them
/// and keep their rows, and what they confirm must be what the table has.
pub struct Watch {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Seen>,
}

/// What the silos did meanwhile.
#[derive(Debug, Default)]
pub struct Seen {
    wrong: Vec<String>,
    /// The versions that were announced to a silo and then withdrawn.
    pub withdrawn: BTreeMap<SiloAddress, Vec<u64>>,
    /// The highest version that a silo published.
    pub published: BTreeMap<SiloAddress, u64>,
    /// Who missed too many probes, and whom somebody voted against.
    pub accused: BTreeSet<SiloAddress>,
}

impl Watch {
    pub fn over<'a>(table: &MemoryTable, silos: impl IntoIterator<Item = &'a Member>) -> Self {
        let watched = silos.into_iter().map(|member| {
            let silo = Silo::clone(member);
            Watched {
                events: silo.events(),
                token: silo.fencing_token(),
                silo,
            }
        });
        let mut watched: Vec<Watched> = watched.collect();
        let (table, mut seen) = (table.clone(), Seen::default());
        let mut history = BTreeMap::new();
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            while timeout(PERIOD, &mut stopped).await.is_err() {
                watched
                    .iter_mut()
                    .for_each(|w| w.look(&table, &mut history, &mut seen));
            }
            watched
                .iter_mut()
                .for_each(|w| w.look(&table, &mut history, &mut seen));
            seen
        });
        Self { stop, task }
    }

    /// What was seen; fails if that must not be.
    pub async fn end(self) -> Seen {
        let _ = self.stop.send(());
        let seen = self.task.await.unwrap();
        assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
        seen
    }
}

struct Watched {
    silo: Silo,
    events: Events,
    token: FencingToken,
}

impl Watched {
    fn look(
        &mut self,
        table: &MemoryTable,
        history: &mut BTreeMap<u64, Snapshot>,
        seen: &mut Seen,
    ) {
        let me = self.silo.me();
        let (token, health) = (self.silo.fencing_token(), self.silo.health());
        let views = [self.silo.confirmed_view(), self.silo.view()];
        // Read last, so that it is not older than what the silo has.
        let now = read(table);
        history.entry(now.version()).or_insert_with(|| now.clone());
        let mut wrong = |what: String| {
            if seen.wrong.len() < MOST {
                seen.wrong.push(format!("{me}: {what}"));
            }
        };
        if token.table_id != now.table_id() || token.version > now.version() || token < self.token {
            wrong(format!(
                "token {token} after {} in version {}",
                self.token,
                now.version()
            ));
        }
        self.token = token;
        if health.status != SiloStatus::Active
            || !(health.ready && health.live)
            || health.table != TableState::Available
        {
            wrong(format!("{health:?}"));
        }
        if now.rows.get(&me).map(|e| e.status) != Some(SiloStatus::Active) {
            wrong(format!("its row in version {}", now.version()));
        }
        for view in views.iter().filter(|view| view.is_confirmed()) {
            let truth = history.get(&view.version());
            if truth.is_some_and(|truth| truth.rows != view.snapshot().rows) {
                wrong(format!("confirms {view:?}, which the table does not have"));
            }
        }
        while let Some(Some(event)) = self.events.next().now_or_never() {
            if let Some(what) = seen.note(me, event) {
                seen.wrong.push(format!("{me}: {what}"));
            }
        }
    }
}

impl Seen {
    /// Notes an event; returns what must not happen.
    fn note(&mut self, silo: SiloAddress, event: Event) -> Option<String> {
        match event.kind {
            EventKind::ViewPublished { .. } => {
                let highest = self.published.entry(silo).or_default();
                *highest = event.version.max(*highest);
                None
            }
            EventKind::ViewWithdrawn { announced } => {
                self.withdrawn.entry(silo).or_default().push(announced);
                None
            }
            EventKind::Suspected { peer, .. } => {
                self.accused.insert(peer);
                None
            }
            EventKind::VoteWritten { suspect } => {
                self.accused.insert(suspect);
                None
            }
            EventKind::Table { .. }
            | EventKind::Suspended
            | EventKind::Ended(_)
            | EventKind::Missed { .. } => Some(format!("{event:?}")),
            _ => None,
        }
    }
}
