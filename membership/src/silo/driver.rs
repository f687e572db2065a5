//! Owns the protocol: feeds it what happens and carries out what it wants, in order.
//!
//! One task per silo. It never waits for the table, the network or the application: table calls are tasks of their own, `send` returns at
//! once, and views go out through a cell that holds the newest. When the task is dropped with its runtime, everything it started goes too,
//! and other silos find out (the row is not marked).

use std::sync::Arc;
use std::time::Duration;

use membership_core::MembershipTable;
use membership_core::protocol::{
    Command, Effect, Input, JoinProgress, Protocol, Setup, Termination,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::calls::{Call, Calls};
use super::clock::Clock;
use super::lag::{Lag, forward_hints};
use super::report::Report;
use super::request::{Request, Stage, Waiting};
use super::state::Teller;
use crate::TimedTable;
use crate::transport::{Inbound, Transport};

/// Called with each report of a join that takes long.
pub(super) type OnProgress = Arc<dyn Fn(&JoinProgress) + Send + Sync>;

/// What a driver is made of.
pub(super) struct Parts {
    pub(super) setup: Setup,
    pub(super) table: TimedTable,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) inbox: mpsc::Receiver<Inbound>,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) stage: watch::Receiver<Stage>,
    pub(super) teller: Teller,
    pub(super) on_progress: Option<OnProgress>,
}

pub(super) struct Driver {
    pub(super) protocol: Protocol,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) teller: Teller,
    pub(super) waiting: Waiting,
    pub(super) report: Report,
    pub(super) on_progress: Option<OnProgress>,
    clock: Clock,
    calls: Calls,
    inbox: mpsc::Receiver<Inbound>,
    requests: mpsc::Receiver<Request>,
    stage: watch::Receiver<Stage>,
    asked: Stage,
    dropped: bool,
    lag: Lag,
    hints: Arc<Notify>,
    helpers: JoinSet<()>,
    effects: Vec<Effect>,
    end: Option<Termination>,
}

impl Driver {
    /// Runs a silo to its end.
    pub(super) async fn run(parts: Parts) {
        let mut helpers = JoinSet::new();
        let lag = Lag::default();
        helpers.spawn(lag.clone().measure(parts.setup.seed));
        let hints = Arc::new(Notify::new());
        if let Some(stream) = parts.table.hints() {
            helpers.spawn(forward_hints(stream, hints.clone()));
        }
        let mut driver = Self {
            report: Report::new(&parts.setup.identity),
            protocol: Protocol::new(parts.setup),
            transport: parts.transport,
            teller: parts.teller,
            waiting: Waiting::default(),
            on_progress: parts.on_progress,
            clock: Clock::new(),
            calls: Calls::new(Arc::new(parts.table)),
            inbox: parts.inbox,
            requests: parts.requests,
            stage: parts.stage,
            asked: Stage::Running,
            dropped: false,
            lag,
            hints,
            helpers,
            effects: Vec::new(),
            end: None,
        };
        driver.take(Input::Start);
        while driver.end.is_none() {
            if let Some(input) = driver.next().await {
                driver.take(input);
            }
        }
        driver.close().await;
    }

    /// The farewell gets its moment to leave before anybody is told of the end: the process may exit when it hears of it.
    async fn close(self) {
        drop((self.helpers, self.calls));
        if tokio::time::timeout(CLOSING, self.transport.shutdown())
            .await
            .is_err()
        {
            tracing::warn!("the transport did not shut down within {CLOSING:?}");
        }
        self.teller.end.send_replace(self.end);
    }

    /// The next thing that happens. Every branch may be dropped half-way without losing anything.
    async fn next(&mut self) -> Option<Input> {
        let wake = self.protocol.next_wakeup();
        let wake_at = self.clock.instant(wake.unwrap_or_default());
        tokio::select! {
            () = sleep_until(wake_at), if wake.is_some() => Some(Input::Wake),
            input = self.calls.next() => Some(input),
            Some(inbound) = self.inbox.recv() => Some(match inbound {
                Inbound::Message { link, header, body } => Input::Message { link, header, body },
                Inbound::SendFailed { to, reason } => Input::SendFailed { to, reason },
            }),
            Some(request) = self.requests.recv() => self.asked(request),
            changed = self.stage.changed(), if !self.dropped => self.leave(changed.is_ok()),
            late = self.lag.next() => {
                self.report.tick(&self.protocol, self.clock.mono(), late, self.transport.stats());
                Some(Input::ExecutorLag(late))
            },
            () = self.hints.notified() => Some(Input::Hint),
        }
    }

    fn asked(&mut self, request: Request) -> Option<Input> {
        let command = match request {
            Request::Heard { from, asked } => return Some(Input::Heard { from, asked }),
            Request::Evict {
                silo,
                reason,
                reply,
            } => Command::Evict {
                request: self.waiting.for_answer(reply)?,
                silo,
                reason,
            },
            Request::Refresh { at_least, reply } => Command::Refresh {
                request: self.waiting.for_refresh(reply)?,
                at_least,
            },
        };
        Some(Input::Command(command))
    }

    /// Somebody asked to leave; or the last handle is gone, and then nobody can drain any more.
    fn leave(&mut self, handles: bool) -> Option<Input> {
        if !handles {
            self.dropped = true;
            // A leave that was asked for to its end goes on as it is.
            return (self.asked != Stage::Finish).then_some(Input::Command(Command::Stop));
        }
        let stage = *self.stage.borrow_and_update();
        self.asked = stage;
        match stage {
            Stage::Running => None,
            Stage::Leave => Some(Input::Command(Command::BeginLeave)),
            Stage::Finish => Some(Input::Command(Command::FinishLeave)),
        }
    }

    fn take(&mut self, input: Input) {
        let now = self.clock.now();
        let mut effects = std::mem::take(&mut self.effects);
        self.protocol.handle(now, input, &mut effects);
        // Before the effects: whoever is woken by one of them finds the state that belongs to it.
        self.teller.update(&self.protocol, now.mono);
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, header, body } => self.transport.send(to, &header, &body),
            Effect::Initialize { call, request } => {
                self.calls.begin(call, Call::Initialize(request))
            }
            Effect::Read { call, request } => self.calls.begin(call, Call::Read(request)),
            Effect::Commit { call, request } => self.calls.begin(call, Call::Commit(request)),
            Effect::WriteHeartbeat { call, write } => {
                self.calls.begin(call, Call::Heartbeat(write))
            }
            Effect::Publish(view) => {
                if let Some(me) = self.protocol.me() {
                    self.transport
                        .update(me, Some(view.table_id()), view.version());
                }
                let now = self.clock.mono();
                self.teller.publish(view.clone(), now);
                self.report.view(view, now);
            }
            Effect::Tell(notice) => self.tell(notice),
            Effect::Observe(observation) => self.report.observation(&observation),
            Effect::Stop(termination) => {
                self.report.end(&termination);
                self.end = Some(termination);
            }
            other => tracing::error!(effect = ?other, "an effect this runtime does not know"),
        }
    }
}

/// The bound of the inbox, in messages; behind it the transport stops reading.
pub(super) const INBOX: usize = 4096;
/// The bound of what handles may have asked without the driver having seen it.
pub(super) const REQUESTS: usize = 256;
/// How long a transport may take to shut down; a good one takes a second at most.
const CLOSING: Duration = Duration::from_secs(2);
/// A driver that took no input for this long is not running: its own lag task is due twice a second.
pub(super) const SILENT: Duration = Duration::from_secs(30);
