//! Which silo removes the rows of Dead silos, and when.

use super::super::cleaner::Cleaner;
use super::super::writer::Writer;
use super::*;
use crate::intent::Action;

/// Silo 9 left two hours ago; the leader is silo 1, which is tested, or silo 2.
fn old_grave(leader: u8) -> Ctx {
    let mut ctx = ctx();
    let mut rows = actives([1, 2]);
    rows[0].active_since = Some(if leader == 1 { 1 } else { 3 });
    rows[1].active_since = Some(2);
    let mut dead = entry(silo(9), SiloStatus::Dead);
    if let Some(death) = &mut dead.death {
        death.cause = crate::CauseOfDeath::Left;
        death.at = NOON.minus(secs(7200));
    }
    rows.push(dead);
    believe(&mut ctx, snapshot(5, rows));
    ctx
}

fn cleans(ctx: &mut Ctx, minutes: u32) -> bool {
    let (mut cleaner, mut writer) = (Cleaner::default(), Writer::default());
    for _ in 0..minutes {
        cleaner.on_timer(ctx, &mut writer);
        pass_time(ctx, secs(60));
    }
    writer.has(|a| matches!(a, Action::RemoveDefunct { silos } if *silos == [silo(9)]))
}

#[test]
fn only_the_leader_cleans_and_only_rows_seen_dead_for_two_minutes() {
    assert!(
        !cleans(&mut old_grave(1), 2),
        "its clock alone says that the silo died long ago"
    );
    assert!(cleans(&mut old_grave(1), 3));
    assert!(!cleans(&mut old_grave(2), 5));
}

#[test]
fn a_suspended_silo_or_one_with_another_table_does_not_clean() {
    let mut ctx = old_grave(1);
    ctx.suspended = true;
    assert!(!cleans(&mut ctx, 5));
    ctx.suspended = false;
    ctx.set_table_state(super::super::TableState::Changed(
        crate::Discontinuity::RolledBack,
    ));
    assert!(!cleans(&mut ctx, 5));
}
