//! Which silos are told to people as not reached, and when.

use super::super::prober::Prober;
use super::super::reach::{NotReached, Reach};
use super::*;
use crate::RollCount;

fn counted(reached: u32) -> RollCount {
    RollCount {
        asked: 5,
        failed: 5 - reached,
        reached,
        silent: 0,
    }
}

/// The tested silo probes silos 2 to 6.
struct Looking {
    ctx: Ctx,
    prober: Prober,
    reach: Reach,
}

impl Looking {
    fn new() -> Self {
        let mut ctx = ctx();
        believe(&mut ctx, snapshot(5, actives(1..=6)));
        let mut prober = Prober::default();
        prober.set_targets(&mut ctx, &(2..=6).map(silo).collect());
        told(&mut ctx);
        Self {
            ctx,
            prober,
            reach: Reach::default(),
        }
    }

    /// A roll call ends that kept this silo.
    fn call(&mut self, kept: u8, found: Option<RollCount>) {
        let now = self.ctx.now.mono;
        self.reach.on_call(now, vec![(silo(kept), found)]);
    }

    /// What is told after this time.
    fn after(&mut self, by: Duration) -> Vec<Vec<NotReached>> {
        pass_time(&mut self.ctx, by);
        self.reach.look(&mut self.ctx, &self.prober);
        let unreached = |notice| match notice {
            Notice::PartialPartition { unreached } => unreached,
            other => panic!("{other:?}"),
        };
        told(&mut self.ctx).into_iter().map(unreached).collect()
    }
}

#[test]
fn a_silo_is_told_once_after_a_failure_window_and_its_return_once() {
    let mut l = Looking::new();
    assert!(l.after(secs(60)).is_empty());
    l.call(2, Some(counted(3)));
    assert!(l.after(ms(4_400)).is_empty());
    assert_eq!(
        l.after(ms(100)),
        [vec![NotReached::new(silo(2), counted(3))]]
    );
    l.call(2, Some(counted(4)));
    assert!(l.after(secs(60)).is_empty(), "other counts are no change");
    assert_eq!(
        l.reach.unreached(&l.ctx),
        [NotReached::new(silo(2), counted(4))]
    );
    l.reach.on_sign_of_life(&silo(2));
    assert_eq!(l.after(secs(1)), [vec![]]);
    assert!(l.after(secs(60)).is_empty());
}

#[test]
fn a_silo_that_answers_soon_or_that_nobody_reaches_is_not_told() {
    let mut l = Looking::new();
    l.call(2, Some(counted(3)));
    l.after(secs(4));
    l.reach.on_sign_of_life(&silo(2));
    l.call(3, None);
    l.call(4, Some(counted(1)));
    l.after(secs(4));
    l.call(4, None);
    assert!(l.after(secs(60)).is_empty());
}

#[test]
fn changes_are_told_at_most_once_in_a_failure_window() {
    let mut l = Looking::new();
    l.call(2, Some(counted(3)));
    assert_eq!(l.after(secs(5)).len(), 1);
    let mut notices = 0;
    for n in 0..60 {
        l.call(3, Some(counted(3)));
        notices += l.after(secs(5)).len();
        if n % 2 == 0 {
            l.reach.on_sign_of_life(&silo(3));
        }
        notices += l.after(ms(10)).len();
    }
    assert!((30..=67).contains(&notices), "{notices} in five minutes");
}

#[test]
fn a_silo_that_dies_or_is_not_probed_any_more_is_no_longer_told() {
    let mut l = Looking::new();
    l.call(2, Some(counted(3)));
    l.call(3, Some(counted(3)));
    assert_eq!(l.after(secs(5))[0].len(), 2);
    believe(&mut l.ctx, snapshot(6, actives([1, 3, 4, 5, 6])));
    told(&mut l.ctx);
    let targets = [4, 5, 6].map(silo).into();
    l.prober.set_targets(&mut l.ctx, &targets);
    assert_eq!(l.after(secs(5)), [vec![]]);
}
