//! The last events, written down once for all clients.
//!
//! A client is a position in this journal. It holds no copy of anything, so 500 clients cost 500
//! positions, and one that reads slowly delays nobody. When the journal has moved on past it, its
//! stream ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use membership_core::{ClusterView, SiloAddress, TableId};
use serde_json::Value;
use tokio::sync::watch;

use super::answer::text_of;
use super::events::{as_json, word};
use super::model;
use super::steady::Steady;
use crate::EventKind;
use crate::silo::Observed;

/// The journal keeps so many events, and so many bytes of them (and always the newest one).
const MOST_EVENTS: usize = 1024;
const MOST_BYTES: usize = 4 << 20;

/// An application may have two routers for one silo, whose journals begin at different times.
static JOURNALS: AtomicU64 = AtomicU64::new(0);

/// One event as the stream has it.
fn frame(id: &str, event: &str, data: &Bytes) -> Bytes {
    let mut frame = Vec::with_capacity(id.len() + event.len() + data.len() + 24);
    for part in [
        b"id: ".as_slice(),
        id.as_bytes(),
        b"\nevent: ",
        event.as_bytes(),
        b"\ndata: ",
        data,
        b"\n\n",
    ] {
        frame.extend_from_slice(part);
    }
    frame.into()
}

pub(super) struct Journal {
    /// Before the number in the id of an event: which silo, and which of its journals.
    prefix: String,
    pages: Mutex<Pages>,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
}

struct Pages {
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// The number of the newest event; 0 before the first.
    newest: u64,
    /// The view after the newest event.
    view: ClusterView,
    /// The last whole view that was asked for, as text.
    whole: Option<((TableId, u64, u128), Bytes)>,
    ended: bool,
}

/// What is next for a client.
pub(super) enum Next {
    Event(Bytes),
    /// Nothing yet.
    Wait,
    /// So many events are gone.
    Missed(u64),
    /// The silo has ended, and the client has everything.
    End,
}

/// Where a client begins: what it gets first, and the number of the event after that.
pub(super) struct Start {
    pub(super) first: VecDeque<Bytes>,
    pub(super) next: u64,
}

impl Journal {
    /// Begins to write down what happens to a silo. The task ends with the silo.
    pub(super) fn start(observed: &Observed) -> Arc<Self> {
        let journal = Arc::new(Self::new(observed.me(), observed.view()));
        let writer = journal.clone();
        let (mut events, mut views) = (observed.events(), observed.views());
        let mut steady = Steady::new(observed);
        let mut every = tokio::time::interval(Duration::from_secs(1));
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    view = views.next() => match view {
                        Some(view) => writer.view(view),
                        None => break,
                    },
                    event = events.next() => match event {
                        // The views come by themselves, with what changed.
                        Some(event) if matches!(event.kind, EventKind::ViewPublished { .. }) => {}
                        Some(event) if !steady.tells(&event) => {}
                        Some(event) => writer.write(word(&event.kind), &as_json(&event)),
                        None => break,
                    },
                    _ = every.tick() => if let Some(event) = steady.tick() {
                        writer.write(word(&event.kind), &as_json(&event));
                    },
                }
            }
            // What was said before the end of the views.
            while let Some(event) = events.next().await {
                if !matches!(event.kind, EventKind::ViewPublished { .. }) {
                    writer.write(word(&event.kind), &as_json(&event));
                }
            }
            writer.end();
        });
        journal
    }

    fn new(me: SiloAddress, view: ClusterView) -> Self {
        let journal = JOURNALS.fetch_add(1, Ordering::Relaxed);
        Self {
            prefix: format!("{me}/{journal}-"),
            pages: Mutex::new(Pages {
                frames: VecDeque::new(),
                bytes: 0,
                newest: 0,
                view,
                whole: None,
                ended: false,
            }),
            newest: watch::Sender::new(0),
        }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn view(&self, view: ClusterView) {
        let older = self.pages().view.clone();
        if older == view {
            return;
        }
        let changes = model::changes(&older, &view);
        self.add("changes", &changes, Some(view));
    }

    fn write(&self, event: &str, data: &Value) {
        self.add(event, data, None);
    }

    fn add(&self, event: &str, data: &Value, view: Option<ClusterView>) {
        let data = text_of(data);
        let mut pages = self.pages();
        pages.newest += 1;
        let number = pages.newest;
        let frame = frame(&self.id_of(number), event, &data);
        pages.bytes += frame.len();
        pages.frames.push_back(frame);
        while pages.frames.len() > 1
            && (pages.frames.len() > MOST_EVENTS || pages.bytes > MOST_BYTES)
        {
            let gone = pages.frames.pop_front();
            pages.bytes -= gone.map_or(0, |frame| frame.len());
        }
        if let Some(view) = view {
            pages.view = view;
        }
        drop(pages);
        self.newest.send_replace(number);
    }

    fn end(&self) {
        self.pages().ended = true;
        self.newest.send_modify(|_| {});
    }

    /// Wakes when there is something new.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// A whole view as text, which is made once for all who ask.
    pub(super) fn whole(&self, view: &ClusterView) -> Bytes {
        let key = (view.table_id(), view.version(), view.digest());
        if let Some((last, text)) = &self.pages().whole
            && *last == key
        {
            return text.clone();
        }
        let text = text_of(&model::view(view));
        self.pages().whole = Some((key, text.clone()));
        text
    }

    /// Where a client begins that got the event with this id last. It goes on there, if the journal
    /// still has what follows; if not, it begins with the whole view.
    pub(super) fn begin(&self, last: Option<&str>) -> Start {
        let (newest, view) = {
            let pages = self.pages();
            if let Some(last) = last.and_then(|id| self.number(id))
                && last <= pages.newest
                && last + 1 >= pages.first()
            {
                return Start {
                    first: VecDeque::new(),
                    next: last + 1,
                };
            }
            (pages.newest, pages.view.clone())
        };
        let id = self.id_of(newest);
        let head = format!("id: {id}\nevent: view\ndata: ");
        let parts = [head.into(), self.whole(&view), Bytes::from_static(b"\n\n")];
        Start {
            first: parts.into(),
            next: newest + 1,
        }
    }

    fn id_of(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }

    fn number(&self, id: &str) -> Option<u64> {
        id.strip_prefix(&self.prefix)?.parse().ok()
    }

    pub(super) fn next(&self, number: u64) -> Next {
        let pages = self.pages();
        let first = pages.first();
        let Some(index) = number.checked_sub(first) else {
            return Next::Missed(first - number);
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        match pages.frames.get(index) {
            Some(frame) => Next::Event(frame.clone()),
            None if pages.ended => Next::End,
            None => Next::Wait,
        }
    }
}

impl Pages {
    /// The number of the oldest event that is left.
    fn first(&self) -> u64 {
        self.newest + 1 - self.frames.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use membership_core::{Rows, SharedSettings, Snapshot, VersionRow};
    use serde_json::json;

    use super::*;

    fn journal() -> Journal {
        let row = VersionRow::initial(TableId::new(1), SharedSettings::default());
        let token = row.token(&[]);
        let view = ClusterView::new(Snapshot::new(token, row, Rows::new()));
        Journal::new("127.0.0.1:1@1".parse().unwrap(), view)
    }

    fn text(next: Next) -> String {
        match next {
            Next::Event(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            _ => String::new(),
        }
    }

    #[test]
    fn a_client_goes_on_after_its_last_event() {
        let journal = journal();
        for n in 1..=3 {
            journal.write("test", &json!({ "n": n }));
        }
        let start = journal.begin(Some(&journal.id_of(1)));
        assert!(start.first.is_empty());
        let got = text(journal.next(start.next));
        let id = journal.id_of(2);
        assert_eq!(got, format!("id: {id}\nevent: test\ndata: {{\"n\":2}}\n\n"));
        assert!(matches!(journal.next(4), Next::Wait));
        journal.end();
        assert!(matches!(journal.next(4), Next::End));
    }

    #[test]
    fn whoever_cannot_go_on_begins_with_the_whole_view() {
        let journal = journal();
        journal.write("test", &json!(1));
        let other = super::tests::journal();
        for id in [
            None,
            Some(String::new()),
            Some("7".to_owned()),
            Some(journal.id_of(9)),
            Some(format!("{}x", journal.id_of(1))),
            Some(other.id_of(1)),
        ] {
            let start = journal.begin(id.as_deref());
            let first: Vec<u8> = start.first.iter().flatten().copied().collect();
            let first = String::from_utf8(first).unwrap();
            let head = format!("id: {}\nevent: view\ndata: {{", journal.id_of(1));
            assert!(first.starts_with(&head), "{id:?}: {first}");
            assert!(first.ends_with("}\n\n"));
            assert_eq!(start.next, 2, "{id:?}");
        }
    }

    #[test]
    fn the_journal_is_bounded_and_says_what_is_gone() {
        let journal = journal();
        for n in 0..2_000 {
            journal.write("test", &json!(n));
        }
        assert!(matches!(journal.next(1), Next::Missed(976)));
        assert!(text(journal.next(2_000)).contains("data: 1999"));
        let large = "x".repeat(MOST_BYTES / 2);
        for _ in 0..4 {
            journal.write("test", &json!(large));
        }
        let pages = journal.pages();
        assert!(pages.bytes <= MOST_BYTES && !pages.frames.is_empty());
        let kept: usize = pages.frames.iter().map(Bytes::len).sum();
        assert_eq!(kept, pages.bytes);
    }
}
