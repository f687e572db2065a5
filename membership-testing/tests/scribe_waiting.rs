//! A scribe that says for ever that changes wait, and writes none of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use membership_core::hooks::{self, ProtocolVariant};
use membership_core::protocol::{
    Destination, Effect, Header, Input, LinkId, Message, Protocol, Setup, Standing,
};
use membership_core::{IntentId, MonoTime, Now};
use membership_testing::{Altered, Cluster, Machine};

const S: fn(u64) -> Duration = Duration::from_secs;
const SILOS: usize = 60;

/// Takes no change into its queue, and says every half second that all of them wait.
#[derive(Default)]
struct Idle {
    header: Option<Header>,
    asked: Vec<(LinkId, Header, Vec<IntentId>)>,
    told: MonoTime,
    lies: Rc<Cell<u32>>,
}

impl Idle {
    fn handle(
        &mut self,
        protocol: &mut Protocol,
        now: Now,
        input: Input,
        effects: &mut Vec<Effect>,
    ) {
        let mut input = input;
        let mut is_due = now.mono.since(self.told) >= Duration::from_millis(500);
        if let Input::Message {
            link, header, body, ..
        } = &input
            && let Message::Forward { changes } = &**body
        {
            let ids = changes.iter().map(|(id, _)| *id).collect();
            self.asked.push((*link, header.clone(), ids));
            is_due = true;
            input = Input::Wake;
        }
        let begin = effects.len();
        protocol.handle(now, input, effects);
        let sent = effects[begin..]
            .iter()
            .rev()
            .find_map(|effect| match effect {
                Effect::Send { header, .. } => Some(header.clone()),
                _ => None,
            });
        self.header = sent.or(self.header.take());
        let Some(mine) = self.header.clone().filter(|_| is_due) else {
            return;
        };
        self.told = now.mono;
        for (link, by, ids) in &self.asked {
            self.lies.set(self.lies.get() + 1);
            let mut header = mine.clone();
            header.to = (by.from.epoch() != 0).then_some(by.from);
            let changes = ids.iter().map(|id| (*id, Standing::Waiting)).collect();
            let waiting = u32::try_from(self.asked.len()).unwrap();
            effects.push(Effect::Send {
                to: Destination::Link(*link),
                header,
                body: Arc::new(Message::Receipt { changes, waiting }),
            });
        }
    }
}

#[test]
fn a_scribe_that_lets_changes_wait_holds_nobody_up_for_long() {
    for seed in 0..4 {
        let lies = Rc::new(Cell::new(0));
        let (mut number, told) = (0, lies.clone());
        let machines = move |setup: Setup| -> Box<dyn Machine> {
            number += 1;
            let variant = ProtocolVariant {
                scribe: true,
                ..ProtocolVariant::STANDARD
            };
            let protocol = hooks::protocol(setup, variant);
            if number > 1 {
                return Box::new(protocol);
            }
            let mut idle = Idle {
                lies: told.clone(),
                ..Idle::default()
            };
            Box::new(Altered::new(
                protocol,
                move |protocol, now, input, effects| idle.handle(protocol, now, input, effects),
            ))
        };
        let mut cluster = Cluster::builder()
            .seed(seed)
            .machines(Box::new(machines))
            .build()
            .unwrap();
        cluster.start(1);
        cluster.run_until_agreed(S(30)).unwrap();
        let began = cluster.now();
        cluster.start(SILOS - 1);
        cluster.run_until_agreed(S(90)).unwrap();
        let took = cluster.now() - began;
        assert_eq!(cluster.running().len(), SILOS);
        assert!(lies.get() > 0, "it was not asked");
        assert!(took <= S(15), "seed {seed}: {took:?}");
    }
}
