//! Handles messages: first whether to accept a message, then its body.

use std::net::SocketAddr;

use super::callers::is_announced;
use super::disseminator::Call;
use super::flood::News;
use super::forward::Standing;
use super::gate::Witness;
use super::io::{LinkId, PeerIdentity};
use super::machine::Protocol;
use super::message::{Header, MIN_PROTOCOL_VERSION, Message, PROTOCOL_VERSION};
use super::observation::{Learned, Observation};
use super::writer::question;
use crate::{MonoTime, SiloAddress, SiloStatus};

impl Protocol {
    fn drop_message(&mut self, reason: &'static str) {
        self.ctx.observe(Observation::Dropped { reason });
    }

    pub(super) fn receive(
        &mut self,
        link: LinkId,
        peer: PeerIdentity,
        header: &Header,
        body: &Message,
    ) {
        if matches!(peer, PeerIdentity::Proven(instance) if instance != header.instance) {
            return self.drop_message("wrong_peer");
        }
        if header.cluster != self.ctx.fingerprint {
            return self.drop_message("wrong_cluster");
        }
        if !(MIN_PROTOCOL_VERSION..=PROTOCOL_VERSION).contains(&header.protocol) {
            return self.drop_message("wrong_protocol");
        }
        if header.instance == self.ctx.identity.instance {
            return match body {
                Message::Identify { nonce } => {
                    self.isolation.on_met_myself(self.ctx.now.mono, *nonce);
                    self.joiner
                        .on_met_myself(&mut self.ctx, &mut self.writer, *nonce)
                }
                _ => self.drop_message("own_message"),
            };
        }
        match body {
            Message::Identify { nonce } => {
                let silo = (self.ctx.me.epoch() != 0).then_some(self.ctx.me);
                let (instance, host) = (
                    self.ctx.identity.instance,
                    self.ctx.identity.info.host_name.clone(),
                );
                return self.ctx.reply(
                    link,
                    header.from,
                    Message::Identity {
                        nonce: *nonce,
                        silo,
                        instance,
                        host,
                    },
                );
            }
            Message::Identity {
                nonce,
                silo,
                instance,
                host,
            } => {
                if *instance == header.instance
                    && self.writer.on_identity(&mut self.ctx, *nonce, *instance)
                {
                    return;
                }
                let step = self
                    .joiner
                    .on_identity(&mut self.ctx, *nonce, *instance, *silo, host);
                return self.step(step);
            }
            _ => {}
        }
        if self.fetches_rows() && matches!(body, Message::AskThem { .. } | Message::Rows { .. }) {
            return self.on_rows(header.from, body);
        }
        if let Message::NotMe { nonce } = body
            && self.on_gone(header.from.endpoint(), Some(*nonce))
        {
            return;
        }
        if header.to.is_some_and(|to| to != self.ctx.me)
            && let Some(nonce) = question_of(body).filter(|_| self.ctx.variant.scribe)
        {
            return self.ctx.reply(link, header.from, Message::NotMe { nonce });
        }
        if self.ctx.me.epoch() == 0 {
            return self.drop_message("not_joined");
        }
        if let Message::AskReach { nonce } = body {
            return self.tell_reach(link, header, *nonce);
        }
        if header.from.same_endpoint(&self.ctx.me) {
            // Another process at this silo's own address: only the table can tell which of the two
            // is newer.
            self.obey(&Call::Hint);
            return self.drop_message("same_address");
        }
        if header.to.is_some_and(|to| to != self.ctx.me) {
            return match body {
                Message::Probe { nonce } => {
                    self.ctx
                        .reply(link, header.from, Message::NotMe { nonce: *nonce })
                }
                _ => self.drop_message("not_me"),
            };
        }
        // What the table says of the sender counts, not what a message said of it.
        let is_member = self.ctx.is_member(&header.from, header.instance);
        if !is_member {
            let base = self.ctx.base.as_ref();
            if base
                .and_then(|v| v.get(&header.from))
                .is_some_and(|e| e.instance_id != header.instance)
            {
                return self.drop_message("wrong_instance");
            }
            // A newcomer that has not read the rows is no former silo at its address.
            let dead = header.from.epoch() != 0
                && base.and_then(|v| v.status(&header.from)) == Some(SiloStatus::Dead);
            if dead {
                if !matches!(body, Message::Farewell { .. }) {
                    self.disseminator
                        .on_dead_peer(&mut self.ctx, link, header.from);
                }
                return;
            }
            // A silo that has lost the table hears of those that write for others, and keeps nobody out.
            let asks_for_words = matches!(body, Message::AskVouched { .. })
                && is_announced(&self.ctx, &header.from, header.instance);
            if !is_for_newcomers(body) && !asks_for_words {
                // A silo that has just joined sends its commit before the table names it here.
                self.obey(&Call::Hint);
                return match body {
                    Message::Delta(_) | Message::News(_) | Message::Announce { .. } => {}
                    _ => self.drop_message("not_a_member"),
                };
            }
        }
        if delta_of(body).is_some_and(|delta| !self.fits(delta)) {
            return self.drop_message("too_large");
        }
        if let Message::Forward { changes } = body {
            let proven = match peer {
                PeerIdentity::Proven(instance) => Some(instance),
                PeerIdentity::Unproven => None,
            };
            let fit = self.is_fit_to_write();
            self.writer
                .on_forward(&mut self.ctx, (link, header.from), proven, changes, fit);
        }
        if let Message::AskRows { nonce, have, want } = body {
            // Whoever proves who it is has the cluster's key, and may read the table as well.
            if matches!(peer, PeerIdentity::Proven(_)) {
                self.tell_rows(link, header.from, (*nonce, *have, *want));
            }
        }
        if matches!(peer, PeerIdentity::Proven(_)) {
            self.speak_of_words(link, header.from, body);
        }
        if let Message::Meet {
            nonce,
            endpoint,
            word,
        } = body
        {
            let word = matches!(peer, PeerIdentity::Proven(_)).then_some(*word);
            self.on_dial_me(header, *nonce, *endpoint, word);
        }
        self.listen(link, header, body);
        if !self.ended && !is_news(body, self.ctx.passes_news_on()) {
            let call = self
                .disseminator
                .on_peer_version(&mut self.ctx, link, header);
            if call == Call::Behind {
                self.flood.know(&mut self.ctx, header.from, header.version);
            }
            self.obey(&call);
        }
    }

    /// Says which words are this silo's, or hears it of others.
    fn speak_of_words(&mut self, link: LinkId, from: SiloAddress, body: &Message) {
        match body {
            Message::AskVouched { nonce, words } if self.ctx.variant.scribe => {
                let (nonce, silos) = (*nonce, self.ctx.words.told(words));
                self.ctx
                    .reply(link, from, Message::Vouched { nonce, silos });
            }
            Message::Vouched { nonce, silos } => {
                self.writer.on_vouched(&mut self.ctx, from, *nonce, silos);
            }
            _ => {}
        }
    }

    fn listen(&mut self, link: LinkId, header: &Header, body: &Message) {
        let from = header.from;
        match body {
            Message::Probe { nonce } => {
                // That strangers reach this silo says nothing about its health.
                if self.ctx.is_member(&from, header.instance) {
                    self.monitor.probe_received(self.ctx.now.mono);
                }
                self.answer(link, from, *nonce);
            }
            Message::ProbeAck { nonce } => self.on_ack(header, *nonce),
            Message::NotMe { .. } if self.ctx.variant.scribe => self.hint_of_stranger(),
            Message::NotMe { .. } => self.heed(header),
            Message::RollCall { call, suspects } => self.on_roll_call(link, from, *call, suspects),
            Message::RollAnswer {
                call,
                findings,
                missed,
            } => {
                let began = self
                    .roll_call
                    .on_answer(&self.ctx, from, *call, findings, missed);
                if let Some(began) = began {
                    self.voter.on_answer(&from, *call, findings);
                    self.hears(from, began);
                }
            }
            Message::RollResult {
                suspects,
                reached,
                wait,
            } => {
                let standoff = &mut self.roll_call.standoff;
                if standoff.took_no_part(&from) && !self.ctx.is_active() {
                    // A Joining silo that was not well may have a say now, or soon.
                    standoff.on_result_without_me(&self.ctx);
                } else {
                    standoff.on_result(&mut self.ctx, from, suspects, *reached, *wait);
                }
            }
            Message::DialMe { nonce, endpoint } => {
                self.on_dial_me(header, *nonce, *endpoint, None);
            }
            Message::DialBack { nonce } => {
                self.on_dial_back(from, *nonce, None);
            }
            Message::Vouch { nonce, word } => {
                if self.on_dial_back(from, *nonce, Some(*word)) {
                    self.answer(link, from, *nonce);
                }
            }
            Message::AskDelta { table_id, have } => {
                if !self.ctx.suspended {
                    self.disseminator
                        .on_ask(&mut self.ctx, link, from, *table_id, *have);
                }
            }
            Message::Delta(delta) => {
                if self.on_delta(from, delta) == Call::Ask {
                    let call = self
                        .disseminator
                        .on_peer_version(&mut self.ctx, link, header);
                    self.obey(&call);
                }
            }
            // A silo that passes no news on asks for it: the header says that there is some.
            Message::News(_) | Message::Announce { .. } if !self.ctx.passes_news_on() => {}
            Message::News(delta) => self.on_news(from, delta),
            Message::Announce { version, commit } => {
                let news = News::announced(from, *version, *commit);
                self.flood.hear(&mut self.ctx, news);
            }
            Message::Farewell { version, delta } => {
                if let Some(delta) = delta {
                    // The sender is gone and cannot be asked for more; other silos send it.
                    self.on_delta(from, delta);
                }
                if *version == 0 || *version > self.ctx.version() {
                    let call = self.disseminator.read_once(&self.ctx);
                    self.obey(&call);
                }
            }
            Message::YouAreDead { .. } => {
                if self.ctx.status != SiloStatus::Created {
                    self.heed(header);
                }
            }
            Message::Receipt { changes, waiting } => {
                let joiner = &self.joiner;
                let is_refused = |(_, standing): &(_, Standing)| *standing == Standing::Refused;
                let passes = joiner.is_joining()
                    && changes.iter().any(is_refused)
                    && joiner
                        .contacts
                        .leaves_any_out(&self.ctx, &self.passed_over());
                let (ctx, writer) = (&mut self.ctx, &mut self.writer);
                let outcomes = writer.on_receipt(ctx, from, changes, *waiting, passes);
                self.settle(outcomes);
            }
            // A silo asks nobody for its reach, and its own was told before; and changes and words were
            // taken with the proof of who asks.
            // A silo that has a view takes no rows.
            Message::Meet { .. }
            | Message::Forward { .. }
            | Message::AskVouched { .. }
            | Message::Vouched { .. }
            | Message::AskRows { .. }
            | Message::AskThem { .. }
            | Message::Rows { .. }
            | Message::Identify { .. }
            | Message::Identity { .. }
            | Message::AskReach { .. }
            | Message::Reach { .. } => {}
        }
    }

    /// Answers whoever the transport has let in: it has read the table, and knows all names. The
    /// question changes nothing.
    fn tell_reach(&mut self, link: LinkId, header: &Header, nonce: u64) {
        let is_for_me = header.to.is_none_or(|to| to == self.ctx.me);
        if !is_for_me || !self.is_exposed() || self.ctx.suspended || self.pause.is_silent() {
            return self.drop_message("not_me");
        }
        let unreached = self.reach.unreached(&self.ctx);
        let answer = Message::Reach { nonce, unreached };
        self.ctx.reply(link, header.from, answer);
    }

    /// Looks at the table because of a message: at once for a member, at the rate of hints for
    /// others.
    fn heed(&mut self, header: &Header) {
        let call = if self.ctx.is_member(&header.from, header.instance) {
            self.disseminator.read_once(&self.ctx)
        } else {
            Call::Hint
        };
        self.obey(&call);
    }

    fn on_ack(&mut self, header: &Header, nonce: u64) {
        let from = header.from;
        if self.prober.on_ack(&mut self.ctx, from, nonce) {
            return self.answers(from);
        }
        if self.joiner.contacts.on_ack(&mut self.ctx, from, nonce) {
            return self.contact_answers(from);
        }
        if let Some(asked) = self.answerer.on_ack(from, nonce) {
            self.hears(from, asked);
        } else if self.roll_call.standoff.on_ack(from, nonce) {
            self.hears(from, self.ctx.mono());
        } else {
            self.reach.on_ack(&from, nonce);
        }
    }

    /// Says that a question has come; after a pause only once this silo may speak again.
    fn answer(&mut self, link: LinkId, from: SiloAddress, nonce: u64) {
        if self.pause.is_silent() {
            self.pause.hold(link, from, nonce);
        } else if self.is_exposed() {
            self.ctx.reply(link, from, Message::ProbeAck { nonce });
        }
    }

    /// A silo asks to be dialled; with its word for this silo if it joins as well.
    fn on_dial_me(&mut self, header: &Header, nonce: u64, endpoint: SocketAddr, word: Option<u64>) {
        let from = header.from;
        // A silo may only request a dial to its own address, which is in its row.
        if endpoint != from.endpoint() || !self.is_exposed() {
            return self.drop_message("dial_elsewhere");
        }
        if self.ctx.is_member(&from, header.instance) {
            self.ctx.dial_back(from, nonce);
            return self.callers.on_met(from, nonce, word);
        }
        self.callers
            .hold(&self.ctx, from, header.instance, (nonce, word));
        self.callers.dial(&mut self.ctx);
        if self.ctx.variant.scribe && self.callers.wait_for_the_table(&self.ctx) {
            self.look_at_the_table(false);
        }
    }

    /// Returns whether the sender may join as well, and wait to hear that its answer has come: it was
    /// told a word, or this silo has forgotten since whom it asked, because it is Active.
    fn on_dial_back(&mut self, from: SiloAddress, nonce: u64, word: Option<u64>) -> bool {
        let (contacts, now) = (&mut self.joiner.contacts, self.ctx.mono());
        let contact = contacts.on_dial_back(from, nonce, word, now);
        if contact.is_some() {
            self.contact_answers(from);
        }
        contact.unwrap_or(self.ctx.variant.scribe)
    }

    /// A silo answered an attempt of the join: it is not stale, whatever its heartbeat shows, and
    /// two-way contact with it is required (invariant P9). The nonce of a contact stays the same, so
    /// the answer may belong to an old question and does not show when that was sent.
    fn contact_answers(&mut self, from: SiloAddress) {
        self.prober.on_evidence(&self.ctx, from, MonoTime::ZERO);
    }

    /// The protocol of a silo answered a question that was sent at `asked`: it is alive.
    fn hears(&mut self, from: SiloAddress, asked: MonoTime) {
        self.prober.on_answer(&self.ctx, from, asked);
        self.answers(from);
    }

    fn answers(&mut self, from: SiloAddress) {
        self.answerer.on_sign_of_life(&mut self.ctx, from);
        self.roll_call.on_sign_of_life(&from);
        self.reach.on_sign_of_life(&from);
        self.voter.on_sign_of_life(&from);
    }

    fn on_roll_call(
        &mut self,
        link: LinkId,
        from: SiloAddress,
        call: u64,
        suspects: &[(SiloAddress, u64)],
    ) {
        if !self.is_exposed() || self.pause.is_silent() {
            return;
        }
        let judge = self.judge();
        let caller = Some((link, from));
        self.answerer
            .on_call(&mut self.ctx, &self.prober, caller, call, suspects, judge);
        let takes_part = judge.local == 0;
        self.roll_call
            .on_call(&mut self.ctx, from, suspects, takes_part);
    }

    /// Whether the table could have these rows.
    fn fits(&self, delta: &crate::Delta) -> bool {
        let limits = &self.ctx.limits;
        let fits = |row: &crate::Row| row.key().len() + row.body().len() <= limits.bytes_per_row;
        delta.rows.len() <= limits.rows
            && delta.removed.len() <= limits.rows
            && delta.rows.iter().all(fits)
    }

    /// Takes the news of one commit. It is passed on once this silo has adopted it.
    fn on_news(&mut self, from: SiloAddress, delta: &crate::Delta) {
        if !self.flood.hear(&mut self.ctx, News::told(from, delta)) {
            return;
        }
        let view = self.ctx.view.as_ref();
        match view.and_then(|view| delta.with_records_of(view.snapshot())) {
            Some(delta) => {
                self.on_delta(from, &delta);
            }
            // It starts from a version that this silo has not heard of.
            None => self.flood.ask(&mut self.ctx, from, delta.to()),
        }
    }

    fn on_delta(&mut self, from: SiloAddress, delta: &crate::Delta) -> Call {
        let (now, window) = (self.ctx.mono(), self.ctx.failure_window());
        let witness = Witness {
            stale: &self.stale,
            // A silo that says itself that it has left is believed.
            heard: &|silo| *silo != from && self.prober.answered_within(silo, now, window),
        };
        let call = self
            .disseminator
            .on_delta(&mut self.ctx, from, delta, &witness);
        match &call {
            Call::Adopted => {
                self.ctx.learned(Learned::of(delta));
                self.confirm_soon();
                self.match_shown();
                if self.ctx.passes_news_on() {
                    self.disseminator.on_news(&mut self.ctx, false);
                }
            }
            Call::Shown(snapshot) => {
                self.take_shown((**snapshot).clone(), Learned::of(delta));
            }
            call => self.obey(call),
        }
        call
    }

    fn obey(&mut self, call: &Call) {
        match call {
            Call::Read => self.writer.want_read(true),
            Call::Look => self.look_at_the_table(true),
            Call::Doubt(now) => {
                self.flood.wait_for_the_table(&mut self.ctx);
                if *now {
                    self.look_at_the_table(true);
                }
            }
            Call::Hint => self.hint_of_stranger(),
            Call::ReadAll => self.writer.want_all(),
            Call::Nothing | Call::Adopted | Call::Shown(_) | Call::Ask | Call::Behind => {}
        }
    }
}

/// What names a question to the silo that wrote last. Where another process is at its address now, that
/// one says so at once, also before it has joined: whoever asked need not wait.
fn question_of(body: &Message) -> Option<u64> {
    match body {
        Message::AskRows { nonce, .. } => Some(*nonce),
        Message::Forward { changes } => changes.first().map(|(id, _)| question(*id)),
        _ => None,
    }
}

fn delta_of(body: &Message) -> Option<&crate::Delta> {
    match body {
        Message::Delta(delta) | Message::News(delta) => Some(delta),
        Message::Farewell { delta, .. } => delta.as_deref(),
        _ => None,
    }
}

/// Whether what a message says is newer than its header, and this silo takes it: news is in it.
const fn is_news(body: &Message, passes_on: bool) -> bool {
    match body {
        Message::Delta(_) | Message::Farewell { .. } => true,
        Message::News(_) | Message::Announce { .. } => passes_on,
        _ => false,
    }
}

/// Whether a silo that the table does not name yet may say this: contact, and hints to look at the
/// table.
const fn is_for_newcomers(body: &Message) -> bool {
    matches!(
        body,
        Message::Probe { .. }
            | Message::ProbeAck { .. }
            | Message::NotMe { .. }
            | Message::DialMe { .. }
            | Message::Meet { .. }
            | Message::DialBack { .. }
            | Message::Vouch { .. }
            | Message::YouAreDead { .. }
            | Message::Forward { .. }
            | Message::AskRows { .. }
    )
}
