//! Owns the protocol: gives it inputs and carries out its effects, in order.
//!
//! One task per silo. It never waits for the table, the network or the application: table calls are
//! tasks of their own, `send` returns at once, and views go into a cell that holds the newest. When
//! the task is dropped with its runtime, everything that it started is dropped too; its row stays
//! as it is, and other silos declare it dead.

use std::sync::Arc;

use membership_core::protocol::{
    Command, Effect, Input, JoinProgress, Protocol, Setup, Termination,
};
use membership_core::{MembershipTable, SiloAddress, TableError, TableId};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tracing::Span;

use super::calls::{Call, Calls};
use super::report::Report;
use super::request::{Request, Waiting};
use super::state::Publisher;
use crate::TimedTable;
use crate::runtime::CLOSING;
use crate::runtime::clock::Clock;
use crate::runtime::guard::panic_of;
use crate::runtime::lag::{Lag, forward_hints};
use crate::runtime::stage::Stage;
use crate::transport::{Encoder, Inbound, Messages, Transport};

/// Called with the progress of a long join.
pub(super) type OnProgress = Arc<dyn Fn(&JoinProgress) + Send + Sync>;

/// What a driver needs.
pub(super) struct Parts {
    pub(super) setup: Setup,
    pub(super) table: TimedTable,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) inbox: Messages,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) stage: watch::Receiver<Stage>,
    pub(super) publisher: Publisher,
    pub(super) on_progress: Option<OnProgress>,
    /// The span of the join.
    pub(super) join: Span,
}

pub(super) struct Driver {
    pub(super) protocol: Protocol,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) publisher: Publisher,
    pub(super) waiting: Waiting,
    pub(super) report: Report,
    pub(super) on_progress: Option<OnProgress>,
    encoder: Encoder,
    pub(super) clock: Clock,
    pub(super) calls: Calls,
    inbox: Messages,
    requests: mpsc::Receiver<Request>,
    stage: watch::Receiver<Stage>,
    asked: Stage,
    dropped: bool,
    lag: Lag,
    hints: Arc<Notify>,
    helpers: JoinSet<()>,
    effects: Vec<Effect>,
    /// The error of the table call that is being handled.
    pub(super) table_error: Option<TableError>,
    end: Option<Termination>,
    /// What the transport was told last.
    transport_knows: Option<(Option<SiloAddress>, TableId, u64, u128)>,
}

impl Driver {
    /// Runs a silo to its end, and tells so if that is a panic.
    pub(super) async fn run(parts: Parts) {
        let (end, mut events) = (parts.publisher.end.clone(), parts.publisher.events.clone());
        if let Some(message) = panic_of(Self::run_to_the_end(parts)).await {
            tracing::error!(message, "the silo's task panicked: this is a defect");
            let panicked = Termination::Panicked { message };
            crate::metrics::stopped(&panicked);
            events.at(Clock::new().now());
            events.ended(&panicked);
            end.send_replace(Some(panicked));
        }
    }

    async fn run_to_the_end(parts: Parts) {
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
            publisher: parts.publisher,
            waiting: Waiting::default(),
            on_progress: parts.on_progress,
            encoder: Encoder::default(),
            clock: Clock::new(),
            calls: Calls::new(Arc::new(parts.table), parts.join),
            inbox: parts.inbox,
            requests: parts.requests,
            stage: parts.stage,
            asked: Stage::Running,
            dropped: false,
            lag,
            hints,
            helpers,
            effects: Vec::new(),
            table_error: None,
            end: None,
            transport_knows: None,
        };
        driver.take(Input::Start);
        while driver.end.is_none() {
            if let Some(input) = driver.next().await {
                driver.take(input);
            }
        }
        driver.close().await;
    }

    /// Sends the farewell before it publishes the end, because the process may exit then.
    async fn close(self) {
        drop((self.helpers, self.calls));
        if tokio::time::timeout(CLOSING, self.transport.shutdown())
            .await
            .is_err()
        {
            tracing::warn!("the transport did not shut down within {CLOSING:?}");
        }
        if let Some(end) = &self.end {
            self.publisher.events.ended(end);
        }
        self.publisher.end.send_replace(self.end);
    }

    /// The next input. Every branch is cancel safe.
    async fn next(&mut self) -> Option<Input> {
        let wake = self.protocol.next_wakeup();
        let wake_at = self.clock.instant(wake.unwrap_or_default());
        tokio::select! {
            () = sleep_until(wake_at), if wake.is_some() => Some(Input::Wake),
            input = self.calls.next() => Some(input),
            Some(inbound) = self.inbox.recv() => Some(match inbound {
                Inbound::Message { link, peer, header, body } => Input::Message { link, peer, header, body },
                Inbound::SendFailed { to, refused, reason } => Input::SendFailed { to, refused, reason },
                Inbound::Disconnected { peer } => Input::Disconnected { peer },
            }),
            Some(request) = self.requests.recv() => self.asked(request),
            changed = self.stage.changed(), if !self.dropped => self.leave(changed.is_ok()),
            late = self.lag.next() => {
                let now = self.clock.now();
                let stats = self.transport.stats();
                self.publisher.writer(self.protocol.writer_state());
                if let Some(silos) = self.report.tick(&self.protocol, now.mono, late, stats) {
                    self.publisher.events.at(now);
                    self.publisher.events.unanswered(silos);
                }
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
                request: self.waiting.for_eviction(reply)?,
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

    /// Handles a request to leave. If the last handle is gone, the silo stops without draining.
    fn leave(&mut self, handles: bool) -> Option<Input> {
        if !handles {
            self.dropped = true;
            // A leave that is past draining needs no handle and continues.
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
        self.table_error = table_error(&input).cloned();
        self.publisher.events.at(now);
        self.protocol.handle(now, input, &mut effects);
        if let Some(view) = self.protocol.confirmed_view() {
            let known = (
                self.protocol.me(),
                view.table_id(),
                view.version(),
                view.digest(),
            );
            if self.transport_knows != Some(known) {
                self.transport_knows = Some(known);
                self.transport.update(known.0, view);
            }
        }
        // Published before the effects, so that a task that an effect wakes finds the new state.
        self.publisher.update(&self.protocol, now.mono);
        for effect in effects.drain(..) {
            self.carry_out(effect);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, header, body } => match self.encoder.encode(&header, &body) {
                Ok(message) => self.transport.send(to, message),
                Err(error) => tracing::error!(%error, message = body.name(), "message dropped"),
            },
            Effect::Initialize { call, request } => {
                self.calls.begin(call, Call::Initialize(request))
            }
            Effect::Read { call, request } => self.calls.begin(call, Call::Read(request)),
            Effect::ReadRow { call, silo } => self.calls.begin(call, Call::ReadRow(silo)),
            Effect::Commit { call, request } => self.calls.begin(call, Call::Commit(request)),
            Effect::WriteHeartbeat { call, write } => {
                self.calls.begin(call, Call::Heartbeat(write))
            }
            Effect::Publish(view) => {
                let now = self.clock.mono();
                self.publisher.publish(view.clone(), now);
                self.report.view(view, now);
            }
            Effect::Tell(notice) => self.tell(notice),
            Effect::Observe(observation) => {
                self.publisher.events.observation(&observation);
                let now = self.clock.mono();
                self.report.observation(&observation, now);
            }
            Effect::Stop(termination) => {
                self.report.end(&termination);
                self.end = Some(termination);
            }
            other => tracing::error!(effect = ?other, "unknown effect"),
        }
    }
}

/// The error of a table call that failed.
fn table_error(input: &Input) -> Option<&TableError> {
    match input {
        Input::Initialized {
            result: Err(error), ..
        }
        | Input::Read {
            result: Err(error), ..
        }
        | Input::RowRead {
            result: Err(error), ..
        }
        | Input::Committed {
            result: Err(error), ..
        }
        | Input::HeartbeatWritten {
            result: Err(error), ..
        } => Some(error),
        _ => None,
    }
}
