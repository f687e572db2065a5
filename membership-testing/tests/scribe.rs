//! One silo writes the changes of many: mass starts, and what becomes of them when that silo dies, is
//! paused, or knows nothing of such requests. The setting `scribe`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use membership_core::hooks::{self, ProtocolVariant};
use membership_core::protocol::{Destination, Effect, Input, Message, OwnChange, Protocol, Setup};
use membership_core::{IntentId, Now, SiloAddress, SiloStatus};
use membership_testing::{Altered, Cluster, Machine, ProcessId, Stats, TableTraffic};

const S: fn(u64) -> Duration = Duration::from_secs;
const MS: fn(u64) -> Duration = Duration::from_millis;
const SILOS: usize = 60;

/// A silo that writes for others and asks others to write, or does neither.
fn silo(setup: Setup, scribe: bool) -> Box<dyn Machine> {
    let variant = ProtocolVariant {
        scribe,
        ..ProtocolVariant::STANDARD
    };
    Box::new(hooks::protocol(setup, variant))
}

/// One silo runs, and the others have just started. Every `without`-th knows nothing of requests to
/// write.
fn start(seed: u64, without: usize) -> Cluster {
    let mut number = 0;
    let machines = move |setup| {
        number += 1;
        silo(setup, without == 0 || number % without != 0)
    };
    let mut cluster = Cluster::builder()
        .seed(seed)
        .machines(Box::new(machines))
        .build()
        .unwrap();
    cluster.start(1);
    cluster.run_until_agreed(S(30)).unwrap();
    cluster.start(SILOS - 1);
    cluster
}

#[test]
fn many_start_with_few_commits() {
    for seed in 0..5 {
        let mut cluster = start(seed, 0);
        let began = cluster.now();
        cluster.run_until_agreed(S(20)).unwrap();
        // A silo that waits with its contacts for the next attempt takes half a second longer.
        let took = cluster.now() - began;
        assert!(took <= MS(3500), "seed {seed}: {took:?}");
        assert_eq!(cluster.running().len(), SILOS);
        let stats = cluster.stats();
        let (commits, conflicts) = (stats.commits, stats.conflicts);
        assert!(
            commits <= 40 && conflicts <= 5,
            "seed {seed}: {commits} commits, {conflicts} conflicts; one each would be 120"
        );
    }
}

#[test]
fn a_scribe_that_dies_or_is_paused_holds_nobody_up() {
    for seed in 0..6 {
        let mut cluster = start(seed, 0);
        cluster.run_for(MS(150 * (1 + seed % 3))).unwrap();
        let scribe = ProcessId(0);
        if seed % 2 == 0 {
            cluster.kill(scribe);
        } else {
            cluster.pause(scribe, S(10));
        }
        cluster.run_until_agreed(S(60)).unwrap();
        assert!(cluster.running().len() >= SILOS - 1, "seed {seed}");
    }
}

#[test]
fn silos_without_it_live_beside_it() {
    for without in [1, 2, 3] {
        let mut cluster = start(7, without);
        cluster.run_until_agreed(S(60)).unwrap();
        assert_eq!(cluster.running().len(), SILOS);
    }
}

#[test]
fn many_leave_at_once() {
    let mut cluster = start(3, 0);
    cluster.run_until_agreed(S(20)).unwrap();
    let leaving: Vec<ProcessId> = cluster.running().into_iter().skip(SILOS / 2).collect();
    for silo in leaving {
        cluster.leave(silo);
    }
    cluster.run_for(S(1)).unwrap();
    cluster.run_until_agreed(S(60)).unwrap();
    assert_eq!(cluster.running().len(), SILOS / 2);
    assert_eq!(cluster.stats().voted_out, 0);
}

#[test]
fn whole_clusters_start_at_once_without_anybody_active() {
    let machines = |setup| silo(setup, true);
    let mut cluster = Cluster::builder()
        .seed(1)
        .machines(Box::new(machines))
        .build()
        .unwrap();
    cluster.start(SILOS);
    cluster.run_until_agreed(S(60)).unwrap();
    assert_eq!(cluster.running().len(), SILOS);
}

/// What a table has borne, in several runs.
#[derive(Debug, Default)]
struct Load {
    commits: u64,
    conflicts: u64,
    rows_read: u64,
}

impl Load {
    /// Counts until all agree.
    fn count(&mut self, cluster: &mut Cluster, at_most: Duration, before: (Stats, TableTraffic)) {
        cluster.run_until_agreed(at_most).unwrap();
        let stats = cluster.stats();
        self.commits += stats.commits - before.0.commits;
        self.conflicts += stats.conflicts - before.0.conflicts;
        self.rows_read += cluster.table_traffic().since(&before.1).rows_read;
    }
}

#[test]
fn a_whole_cluster_starts_again_with_few_commits_and_reads() {
    const RUNS: u64 = 5;
    let mut load = Load::default();
    for seed in 0..RUNS {
        let mut cluster = start(seed, 0);
        cluster.run_until_agreed(S(20)).unwrap();
        let all = cluster.running();
        for silo in &all {
            cluster.kill(*silo);
        }
        cluster.run_for(S(5)).unwrap();
        let before = (*cluster.stats(), cluster.table_traffic());
        // In another order than at first.
        for i in 0..SILOS {
            cluster.restart(all[i * 37 % SILOS]);
            cluster.run_for(MS(8)).unwrap();
        }
        load.count(&mut cluster, S(5), before);
        assert_eq!(cluster.running().len(), SILOS);
        assert_eq!(cluster.stats().voted_out_alive, 0);
    }
    let silos = RUNS * SILOS as u64;
    assert!(
        load.commits <= RUNS * 30 && load.conflicts <= silos / 10 && load.rows_read <= 3 * silos,
        "{load:?} in {RUNS} runs of {SILOS} silos"
    );
}

#[test]
fn the_silos_of_a_scribe_that_dies_ask_another_one() {
    const RUNS: u64 = 5;
    let mut load = Load::default();
    for seed in 0..RUNS {
        let mut cluster = start(seed, 0);
        let before = (*cluster.stats(), cluster.table_traffic());
        let half = |c: &Cluster| c.table().is_some_and(|t| t.rows.len() >= SILOS / 2);
        assert!(cluster.run_until(S(10), half).unwrap());
        let last = cluster.table().unwrap().version_row.recent.last().cloned();
        let scribe = cluster.truth().owners[&last.unwrap().committer.unwrap()];
        cluster.kill(scribe);
        load.count(&mut cluster, S(6), before);
        assert_eq!(cluster.running().len(), SILOS - 1, "seed {seed}");
    }
    let tried = load.commits + load.conflicts;
    assert!(
        tried <= 3 * load.commits + RUNS * SILOS as u64 / 10 && load.conflicts <= RUNS * 12,
        "{load:?} in {RUNS} runs of {SILOS} silos"
    );
}

/// Takes one row out of what a silo sends newcomers; counts how often.
fn lie(effects: &mut [Effect], lies: &Cell<u32>) {
    for effect in effects {
        if let Effect::Send { body, .. } = effect
            && let Message::Rows { .. } = **body
        {
            let mut told = (**body).clone();
            if let Message::Rows { rows, .. } = &mut told
                && rows.pop().is_some()
            {
                lies.set(lies.get() + 1);
            }
            *body = Arc::new(told);
        }
    }
}

#[test]
fn newcomers_take_no_rows_that_the_table_does_not_have() {
    for every in [1, 3] {
        let lies = Rc::new(Cell::new(0));
        let (mut number, told) = (0, lies.clone());
        let machines = move |setup| -> Box<dyn Machine> {
            number += 1;
            let variant = ProtocolVariant {
                scribe: true,
                full_check_limit: Some(5),
                ..ProtocolVariant::STANDARD
            };
            let protocol = hooks::protocol(setup, variant);
            if number % every == 0 {
                let lies = told.clone();
                Box::new(Altered::new(
                    protocol,
                    move |protocol, now, input, effects| {
                        let begin = effects.len();
                        protocol.handle(now, input, effects);
                        lie(&mut effects[begin..], &lies);
                    },
                ))
            } else {
                Box::new(protocol)
            }
        };
        let mut cluster = Cluster::builder()
            .seed(2)
            .machines(Box::new(machines))
            .build()
            .unwrap();
        cluster.start(6);
        cluster.run_until_agreed(S(60)).unwrap();
        cluster.start(SILOS - 6);
        cluster.run_until_agreed(S(60)).unwrap();
        assert_eq!(cluster.running().len(), SILOS);
        assert!(lies.get() > 0, "nobody was lied to");
    }
}

#[test]
fn a_mass_start_reads_few_rows_and_one_that_lasts_reads_none() {
    let mut cluster = start(4, 0);
    let before = cluster.table_traffic();
    cluster.run_until_agreed(S(20)).unwrap();
    let joined = cluster.table_traffic().since(&before);
    assert!(
        joined.rows_read <= 3 * SILOS as u64,
        "{} rows read; everybody reading everything would be {}",
        joined.rows_read,
        SILOS * SILOS
    );
    cluster.run_for(S(120)).unwrap();
    let before = cluster.table_traffic();
    cluster.run_for(S(300)).unwrap();
    let steady = cluster.table_traffic().since(&before);
    assert_eq!(
        (steady.reads, steady.rows_read, steady.heartbeats_read),
        (0, 0, 0)
    );
    assert!(steady.row_reads > 0, "it looks at the version row");
}

/// A silo that asks all others to write its activation, and says that it has met everybody. Whoever
/// has not dialled it has told it no word.
struct Pretender {
    words: BTreeMap<SiloAddress, u64>,
    said: Rc<Cell<u32>>,
}

impl Pretender {
    fn pretend(&self, protocol: &Protocol, effects: &mut Vec<Effect>) {
        let header = effects.iter().find_map(|effect| match effect {
            Effect::Send { header, .. } => Some(header.clone()),
            _ => None,
        });
        let (Some(header), Some(view)) = (header, protocol.view()) else {
            return;
        };
        let others = view.members().map(|e| e.address);
        let others: Vec<SiloAddress> = others.filter(|s| *s != header.from).collect();
        let word = |silo: &SiloAddress| self.words.get(silo).copied().unwrap_or(7);
        let words = others.iter().map(|silo| (*silo, word(silo))).collect();
        let change = OwnChange::BecomeActive { contacted: words };
        for silo in others {
            self.said.set(self.said.get() + 1);
            let mut header = header.clone();
            header.to = Some(silo);
            let id = IntentId::new(self.said.get().into());
            let changes = vec![(id, change.clone())];
            effects.push(Effect::Send {
                to: Destination::Endpoint(silo.endpoint()),
                header,
                body: Arc::new(Message::Forward { changes }),
            });
        }
    }
}

impl Pretender {
    fn handle(
        &mut self,
        protocol: &mut Protocol,
        now: Now,
        input: Input,
        effects: &mut Vec<Effect>,
    ) {
        if let Input::Message { header, body, .. } = &input
            && let Message::Vouch { word, .. } = **body
        {
            self.words.insert(header.from, word);
        }
        let begin = effects.len();
        protocol.handle(now, input, effects);
        if protocol.status() == SiloStatus::Joining {
            let mut own = effects.split_off(begin);
            self.pretend(protocol, &mut own);
            effects.append(&mut own);
        }
    }
}

#[test]
fn nobody_becomes_active_by_saying_that_it_met_everybody() {
    const OTHERS: usize = 6;
    for seed in 0..4 {
        let said = Rc::new(Cell::new(0));
        let (mut number, told) = (0, said.clone());
        let machines = move |setup| -> Box<dyn Machine> {
            number += 1;
            if number <= OTHERS {
                return silo(setup, true);
            }
            let variant = ProtocolVariant {
                scribe: true,
                ..ProtocolVariant::STANDARD
            };
            let mut pretender = Pretender {
                words: BTreeMap::new(),
                said: told.clone(),
            };
            let protocol = hooks::protocol(setup, variant);
            Box::new(Altered::new(
                protocol,
                move |protocol, now, input, effects| {
                    pretender.handle(protocol, now, input, effects);
                },
            ))
        };
        let mut cluster = Cluster::builder()
            .seed(seed)
            .machines(Box::new(machines))
            .build()
            .unwrap();
        let honest = cluster.start(OTHERS);
        cluster.run_until_agreed(S(60)).unwrap();
        let pretender = cluster.start(1)[0];
        // One silo cannot dial it, and the others can.
        cluster.block(honest[1], pretender);
        cluster.run_for(S(8)).unwrap();
        assert!(said.get() > 0, "it has said nothing");
        assert_eq!(cluster.status(pretender), Some(SiloStatus::Joining));
        cluster.heal();
        cluster.run_until_agreed(S(60)).unwrap();
        assert_eq!(cluster.running().len(), OTHERS + 1, "seed {seed}");
    }
}
