//! Peers that lie: a stranger, former members, and one member. They forge messages of every kind,
//! from what a member could know.

use std::sync::Arc;
use std::time::Duration;

use crate::checks::Fact;
use crate::cluster::Cluster;
use crate::events::Event;
use crate::ground_truth::ProcessId;
use crate::rng::Rng;
use membership_core::protocol::{
    Finding, Header, Input, LinkId, Message, OwnChange, PeerIdentity, Standing,
};
use membership_core::{
    CauseOfDeath, ChangedKeys, ClusterView, CommitId, CommitRecord, CommitRequest, Death, Delta,
    InstanceId, IntentId, MembershipEntry, Row, SiloAddress, SiloStatus, Snapshot, TableId,
    VersionRow, VersionToken, WallTime,
};

/// The time between two forged messages.
const BETWEEN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(400));

/// Who forges messages in a cluster.
#[derive(Debug)]
pub(super) struct Hostile {
    rng: Rng,
    lies: bool,
    liar: Option<ProcessId>,
}

/// Whom a forged message comes from.
struct Speaker {
    /// The member that lies, if it is that one.
    liar: Option<ProcessId>,
    link: LinkId,
    silo: SiloAddress,
    instance: InstanceId,
}

impl Cluster {
    /// From now on a stranger, and silos that are Dead, send forged messages of every kind to all
    /// silos. With `lies`, so does one member, beside what its protocol says. Ends with
    /// [`end_faults`](Self::end_faults).
    ///
    /// The checkers then judge confirmed views alone: what a member announces may be a lie.
    pub fn add_hostile_peers(&mut self, lies: bool) {
        self.truth.lies |= lies;
        self.hostile = Some(Hostile {
            rng: Rng::new(self.seed ^ 0x686f_7374_696c_6500),
            lies,
            liar: None,
        });
        self.queue.schedule(self.now + BETWEEN.0, Event::Forge);
    }

    /// Delivers one forged message, and plans the next.
    pub(super) fn forge(&mut self) {
        let Some(mut hostile) = self.hostile.take() else {
            return;
        };
        let running = self.running();
        if let Some(victim) = hostile.rng.pick(&running)
            && let Some(view) = self.processes.get(victim.0).and_then(|p| p.view.clone())
            && let Some(me) = self.address(victim)
        {
            let speaker = hostile.speaker(self, &running, &view);
            let mut header = Header::new(self.name.fingerprint(), speaker.silo, speaker.instance);
            header.to = hostile.rng.chance(0.8).then_some(me);
            header.table_id = Some(view.table_id());
            header.version = view.version() + hostile.rng.below(3) as u64;
            header.digest = hostile.rng.next_u64();
            let body = Arc::new(hostile.body(&speaker, &view, me));
            self.stats.forged += 1;
            self.note(
                victim,
                format!("gets a forged {} of {}", body.name(), speaker.silo),
            );
            if let Some(from) = speaker.liar {
                let (to, body) = (victim, &body);
                self.observe(&Fact::Lied { from, to, body });
            }
            let (link, peer) = (speaker.link, PeerIdentity::Proven(speaker.instance));
            self.feed(
                victim,
                None,
                Input::Message {
                    link,
                    peer,
                    header,
                    body,
                },
            );
        }
        let next = self.now + hostile.rng.between(BETWEEN.0, BETWEEN.1);
        self.queue.schedule(next, Event::Forge);
        self.hostile = Some(hostile);
    }
}

impl Hostile {
    fn speaker(&mut self, cluster: &Cluster, running: &[ProcessId], view: &ClusterView) -> Speaker {
        let is_there = |liar: &ProcessId| running.contains(liar);
        if self.lies && !self.liar.as_ref().is_some_and(is_there) {
            self.liar = self.rng.pick(running);
        }
        if let Some(liar) = self.liar.filter(|_| self.lies && self.rng.chance(0.5))
            && let Some(silo) = cluster.address(liar)
            && let Some(entry) = view.get(&silo)
        {
            return Speaker {
                liar: Some(liar),
                link: LinkId(liar.0 as u64),
                silo,
                instance: entry.instance_id,
            };
        }
        let dead = view.members().filter(|e| e.status == SiloStatus::Dead);
        let former: Vec<_> = dead.map(|e| (e.address, e.instance_id)).collect();
        let link = LinkId(u64::MAX);
        if let Some((silo, instance)) = self.rng.pick(&former).filter(|_| self.rng.chance(0.3)) {
            return Speaker {
                liar: None,
                link,
                silo,
                instance,
            };
        }
        // A stranger may claim to be anybody, but proves another instance.
        let members: Vec<_> = view.members().map(|e| e.address).collect();
        let claimed = self.rng.pick(&members).filter(|_| self.rng.chance(0.7));
        Speaker {
            liar: None,
            link,
            silo: claimed.unwrap_or_else(|| self.made_up()),
            instance: InstanceId::new(self.rng.next_u128()),
        }
    }

    fn made_up(&mut self) -> SiloAddress {
        let [_, _, a, b, c, d, e, f] = self.rng.next_u64().to_be_bytes();
        let port = u16::from_be_bytes([e, f]);
        SiloAddress::new([10, a, b, c].into(), port, u64::from(d) + 1)
    }

    fn body(&mut self, speaker: &Speaker, view: &ClusterView, me: SiloAddress) -> Message {
        let members: Vec<_> = view.members().map(|e| e.address).collect();
        let nonce = self.rng.next_u64();
        let silo = self.rng.pick(&members).unwrap_or(me);
        match self.rng.below(14) {
            0 => Message::Probe { nonce },
            1 => Message::ProbeAck { nonce },
            2 => Message::NotMe { nonce },
            3 => Message::RollCall {
                call: nonce,
                suspects: members.iter().map(|silo| (*silo, nonce % 9_000)).collect(),
            },
            4 if nonce.is_multiple_of(2) => Message::RollResult {
                suspects: members,
                reached: 1_000,
                wait: Duration::from_millis(nonce % 100_000),
            },
            4 => Message::RollAnswer {
                call: nonce,
                findings: vec![(silo, Finding::Unknown)],
                missed: members,
            },
            5 if nonce.is_multiple_of(2) => Message::Meet {
                nonce,
                endpoint: silo.endpoint(),
                word: !nonce,
            },
            5 => Message::DialMe {
                nonce,
                endpoint: silo.endpoint(),
            },
            6 if nonce.is_multiple_of(2) => Message::Vouch {
                nonce,
                word: !nonce,
            },
            6 => Message::DialBack { nonce },
            7 => Message::AskDelta {
                table_id: Some(view.table_id()),
                have: view.version().saturating_sub(nonce % 20),
            },
            8 => Message::Farewell {
                version: view.version() + nonce % 3,
                delta: Some(Box::new(self.delta(view, me))),
            },
            9 => Message::YouAreDead {
                version: view.version() + nonce % 3,
            },
            10 => self.forward(speaker, view),
            _ => Message::Delta(Box::new(self.delta(view, me))),
        }
    }

    /// A request to write a row, an activation or an end, of the speaker or of somebody else, or what
    /// pretends to be the answer to one, or belongs to its proof.
    fn forward(&mut self, speaker: &Speaker, view: &ClusterView) -> Message {
        let id = IntentId::new(self.rng.next_u128());
        let (nonce, word) = (id.get() as u64, (id.get() >> 64) as u64);
        if self.rng.chance(0.3) {
            let silos = view.members().map(|e| e.address);
            match nonce % 4 {
                0 => {
                    let words = silos.map(|silo| (silo, word)).collect();
                    return Message::AskVouched { nonce, words };
                }
                1 => {
                    let silos = silos.collect();
                    return Message::Vouched { nonce, silos };
                }
                _ => {}
            }
            let version = view.version() + 1;
            return Message::Receipt {
                changes: vec![(id, Standing::Written { version })],
                waiting: u32::MAX,
            };
        }
        let members: Vec<_> = view.members().map(|e| e.address).collect();
        let somebody = self.rng.pick(&members).unwrap_or(speaker.silo);
        let address = if self.rng.chance(0.5) {
            speaker.silo
        } else {
            SiloAddress::at(somebody.endpoint(), somebody.epoch() + 1)
        };
        let now = WallTime::from_millis(self.rng.next_u64() >> 20);
        let row = Row::encode(MembershipEntry::new(address, speaker.instance, now));
        let change = match self.rng.below(3) {
            // A member that asks for its own end gets it.
            0 if speaker.link == LinkId(u64::MAX) => OwnChange::Leave,
            // The words are made up: a contact that it had, it need not lie about.
            1 => OwnChange::BecomeActive {
                contacted: members.into_iter().map(|silo| (silo, word)).collect(),
            },
            _ => OwnChange::Join(row),
        };
        Message::Forward {
            changes: vec![(id, change)],
        }
    }

    /// A delta whose digest and token are in order, and whose rows never were in the table.
    fn delta(&mut self, view: &ClusterView, me: SiloAddress) -> Delta {
        let base = view.snapshot();
        let entries: Vec<&MembershipEntry> = base.rows.entries().collect();
        let anybody = self.rng.pick(&entries).cloned();
        let mine = view.get(&me).cloned();
        let (mut inserts, mut updates, mut removes) = (Vec::new(), Vec::new(), Vec::new());
        match self.rng.below(6) {
            0 => updates.extend(mine.map(|e| self.dead(e, view))),
            1 => updates.extend(mine.map(|mut e| {
                e.status = SiloStatus::ShuttingDown;
                e
            })),
            2 => updates.extend(anybody.map(|e| self.dead(e, view))),
            3 => removes.extend(anybody.map(|e| e.address.row_key())),
            4 => {
                let instance = InstanceId::new(self.rng.next_u128());
                let now = WallTime::from_millis(self.rng.next_u64() >> 20);
                let mut entry = MembershipEntry::new(self.made_up(), instance, now);
                entry.status = SiloStatus::Active;
                entry.active_since = Some(view.version() + 1);
                inserts.push(entry);
            }
            _ => {}
        }
        let id = CommitId::new(self.rng.next_u128());
        let commit = CommitRequest::new(base.token.clone(), id, None, inserts, updates, removes);
        let next = commit.apply_to(base, commit.next_token(&[]));
        let forged = ClusterView::new(self.bent(base, next));
        let step = forged.delta_since(base.version());
        step.filter(|_| self.rng.chance(0.5))
            .unwrap_or_else(|| Delta::whole(&forged))
    }

    fn dead(&mut self, mut entry: MembershipEntry, view: &ClusterView) -> MembershipEntry {
        let cause = match self.rng.below(3) {
            0 => CauseOfDeath::Voted,
            1 => CauseOfDeath::Left,
            _ => CauseOfDeath::Stuck,
        };
        entry.status = SiloStatus::Dead;
        let at = WallTime::from_millis(self.rng.next_u64() >> 20);
        entry.death = Some(Death::new(cause, at, None, view.version() + 1));
        entry
    }

    /// The forged snapshot with the next version; or a thousand later, with the known version, or
    /// of another table.
    fn bent(&mut self, base: &Snapshot, next: Snapshot) -> Snapshot {
        let mut row = VersionRow::clone(&next.version_row);
        let id = row.last_commit();
        match self.rng.below(5) {
            0 => {
                row.version += 1000;
                let record = CommitRecord::new(row.version, id, None, ChangedKeys::Count(1));
                row.recent = vec![record];
            }
            1 => {
                row.clone_from(&base.version_row);
                return Snapshot::new(base.token.clone(), row, next.rows);
            }
            2 => row.table_id = TableId::new(self.rng.next_u128()),
            _ => return next,
        }
        let token = VersionToken::new(row.table_id, row.version, id, &[]);
        Snapshot::new(token, row, next.rows)
    }
}
