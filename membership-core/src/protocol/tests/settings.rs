//! The shared settings of the table, which may contain any value; and the heartbeat period that
//! follows them.

use super::super::heartbeat_writer::HeartbeatWriter;
use super::super::timers::Timer;
use super::*;
use crate::{Operation, TableError, TableErrorKind};

fn extreme(duration: Duration, number: u32) -> SharedSettings {
    SharedSettings {
        i_am_alive_period: duration,
        num_missed_i_am_alive_limit: number,
        failure_window: duration,
        num_votes_for_death_declaration: number,
        death_vote_expiration: duration,
        max_join_attempt_time: duration,
        extra: Extra::default(),
    }
}

#[test]
fn zero_and_huge_settings_are_clamped() {
    for settings in [extreme(Duration::ZERO, 0), extreme(Duration::MAX, u32::MAX)] {
        let mut ctx = ctx();
        believe(&mut ctx, snapshot_with(5, actives([1]), settings));
        assert!((ms(500)..=secs(600)).contains(&ctx.heartbeat_period()));
        assert!((ms(200)..=secs(1200)).contains(&ctx.failure_window()));
        assert!((1..=10).contains(&ctx.settings().num_votes_for_death_declaration));
        assert!(ctx.settings().death_vote_expiration >= ctx.failure_window() * 2);
    }
}

#[test]
fn valid_settings_are_used_unchanged() {
    let mut ctx = ctx();
    let settings = SharedSettings {
        i_am_alive_period: secs(30),
        ..SharedSettings::default()
    };
    believe(&mut ctx, snapshot_with(5, actives([1]), settings.clone()));
    assert_eq!(*ctx.settings(), settings);
}

#[test]
fn the_heartbeat_counts_from_one_and_is_retried_within_a_period() {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1])));
    let mut heartbeat_writer = HeartbeatWriter::default();
    heartbeat_writer.start(&mut ctx);
    for counter in 1..=3 {
        let due = ctx.timers.next().unwrap().since(ctx.now.mono);
        assert!(due <= secs(10), "{due:?}");
        pass_time(&mut ctx, due);
        assert_eq!(ctx.timers.pop_due(ctx.now.mono), Some(Timer::Heartbeat));
        heartbeat_writer.on_timer(&mut ctx);
        let Some(Effect::WriteHeartbeat {
            call,
            write:
                crate::HeartbeatWrite::Silo {
                    heartbeat,
                    silo: who,
                },
        }) = ctx.out.pop()
        else {
            panic!("no beat");
        };
        assert_eq!((heartbeat.counter, who), (counter, silo(1)));
        let error = TableError::new(TableErrorKind::Unavailable, Operation::Read, "test", "down");
        assert!(
            heartbeat_writer
                .on_written(&mut ctx, call, &Err(error))
                .is_some()
        );
        assert_eq!(
            ctx.timers.next().unwrap().since(ctx.now.mono),
            ms(2_500),
            "a quarter of the period"
        );
    }
}

#[test]
fn nothing_is_written_while_suspended_or_to_another_table() {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1])));
    let mut heartbeat_writer = HeartbeatWriter::default();
    ctx.suspended = true;
    heartbeat_writer.on_timer(&mut ctx);
    ctx.suspended = false;
    ctx.set_table_state(super::super::TableState::Changed(
        crate::Discontinuity::Replaced,
    ));
    heartbeat_writer.on_timer(&mut ctx);
    assert!(
        !ctx.out
            .iter()
            .any(|e| matches!(e, Effect::WriteHeartbeat { .. }))
    );
}
