//! The leave.

use super::super::TableState;
use super::super::leaver::Leaver;
use super::super::timers::Timer;
use super::super::writer::Writer;
use super::*;
use crate::intent::{Action, Answer};

fn here() -> (Ctx, Leaver, Writer) {
    let mut ctx = ctx();
    believe(&mut ctx, snapshot(5, actives([1, 2])));
    (ctx, Leaver::default(), Writer::default())
}

#[test]
fn a_leave_is_published_then_drained_then_the_row_ends() {
    let (mut ctx, mut leaver, mut writer) = here();
    leaver.begin(&mut ctx, &mut writer);
    assert!(writer.has(|a| matches!(a, Action::BeginShutdown { fast: false, .. })));
    let begun = Action::BeginShutdown {
        silo: silo(1),
        fast: false,
    };
    leaver.on_answer(
        &mut ctx,
        &mut writer,
        &begun,
        &Answer::Applied { version: 6 },
    );
    assert_eq!(told(&mut ctx), [Notice::LeaveBegun { version: Some(6) }]);
    assert!(!writer.has(|a| matches!(a, Action::Leave { .. })) && !leaver.is_ending());
    leaver.finish(&mut ctx, &mut writer);
    assert!(writer.has(|a| matches!(a, Action::Leave { .. })) && leaver.is_ending());
}

#[test]
fn with_the_table_down_a_leave_ends_at_its_timeout() {
    let (mut ctx, mut leaver, mut writer) = here();
    let began = ctx.now.mono;
    leaver.finish(&mut ctx, &mut writer);
    let mut over = false;
    while !over {
        let by = ctx.timers.next().unwrap().since(ctx.now.mono);
        pass_time(&mut ctx, by);
        assert_eq!(ctx.timers.pop_due(ctx.now.mono), Some(Timer::Leave));
        over = leaver.on_timer(&mut ctx, &mut writer);
    }
    assert_eq!(ctx.now.mono.since(began), ctx.config.leave_timeout);
    assert_eq!(told(&mut ctx), [Notice::LeaveBegun { version: None }]);
}

#[test]
fn a_silo_that_stops_does_not_drain_and_does_not_accuse() {
    let (mut ctx, mut leaver, mut writer) = here();
    leaver.stop(&mut ctx, &mut writer);
    assert!(
        writer.has(|a| matches!(a, Action::BeginShutdown { fast: true, .. }))
            && writer.has(|a| matches!(a, Action::Leave { .. }))
    );
    assert!(leaver.is_ending() && !ctx.is_active());
}

#[test]
fn with_another_table_than_before_a_leave_waits_for_nothing() {
    for draining in [false, true] {
        let (mut ctx, mut leaver, mut writer) = here();
        ctx.set_table_state(TableState::Changed(crate::Discontinuity::Replaced));
        told(&mut ctx);
        if draining {
            leaver.begin(&mut ctx, &mut writer);
            assert_eq!(told(&mut ctx), [Notice::LeaveBegun { version: None }]);
        }
        leaver.finish(&mut ctx, &mut writer);
        assert_eq!(ctx.timers.pop_due(ctx.now.mono), Some(Timer::Leave));
        assert!(leaver.on_timer(&mut ctx, &mut writer));
    }
}
