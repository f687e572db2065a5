//! The health score of this silo.

use super::super::monitor::Monitor;
use super::*;

#[test]
fn a_late_executor_is_a_local_reason_for_a_failure_window() {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2])));
    let mut m = Monitor::default();
    m.executor_lag(ctx.now.mono, ms(1_000));
    m.timers_late(ctx.now.mono, ms(1_500));
    m.update(&mut ctx, 0, None, &[]);
    assert_eq!((m.score(), m.local()), (0, 0), "a second is allowed");
    m.executor_lag(ctx.now.mono, ms(1_001));
    m.timers_late(ctx.now.mono, ms(1_501));
    m.update(&mut ctx, 0, None, &[]);
    assert_eq!((m.score(), m.local(), m.health_multiplier()), (2, 2, 3));
    pass_time(&mut ctx, secs(16));
    m.update(&mut ctx, 0, None, &[]);
    assert_eq!((m.score(), m.local()), (0, 0));
}

#[test]
fn silence_counts_only_with_targets_and_after_a_failure_window() {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2, 3])));
    let mut m = Monitor::default();
    m.update(&mut ctx, 2, None, &[]);
    assert_eq!(m.score(), 0, "it has only begun");
    pass_time(&mut ctx, secs(16));
    m.update(&mut ctx, 2, None, &[]);
    assert_eq!(
        (m.score(), m.local()),
        (2, 0),
        "nobody answers, nobody asks"
    );
    assert!(m.hears_nobody(&ctx, 2, None) && !m.hears_nobody(&ctx, 1, None));
    m.probe_received(ctx.now.mono);
    let now = ctx.now.mono;
    m.update(&mut ctx, 2, Some(now), &[silo(2)]);
    assert_eq!(m.score(), 1, "a vote against me");
}

#[test]
fn a_silo_that_is_not_active_has_the_worst_score() {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1])));
    ctx.status = SiloStatus::ShuttingDown;
    let mut m = Monitor::default();
    m.update(&mut ctx, 0, None, &vec![silo(2); 1_000]);
    assert_eq!(m.score(), 8);
}
