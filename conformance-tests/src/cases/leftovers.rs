//! What the store keeps of deleted tables and of silos that are gone: nothing. T8, T12.

use membership_core::{Heartbeat, HeartbeatWrite, TableErrorKind, WallTime};

use crate::Capability;
use crate::case::{Case, Cx, Verdict, case, commit, must, read, refused};

pub(super) const CASES: &[Case] = &[
    case!(a_deleted_table_leaves_nothing_in_the_store: T12),
    case!(silos_that_come_and_go_leave_nothing_in_the_store: T8),
];

/// After so many cycles a version row is as large as it gets: it tells of sixteen commits.
const FULL: usize = 10;

async fn a_deleted_table_leaves_nothing_in_the_store(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let (a, b) = (cx.entry(), cx.entry());
    let start = read(&table).await?.0.token;
    commit(&table, &cx.insert(&start, [a.clone(), b.clone()])).await?;
    for silo in [a.address, b.address] {
        table.update_i_am_alive(&beat_of(silo, 1)).await?;
    }
    let text = "of the cluster".to_owned();
    table
        .update_i_am_alive(&HeartbeatWrite::Cluster { text })
        .await?;
    let full = cx.backend().count(table.cluster()).await?;
    must!(
        full > 1,
        "the store keeps two rows and two heartbeats, but its backend counts {full}"
    );
    table.delete().await?;
    let left = cx.backend().count(table.cluster()).await?;
    must!(left == 0, "of {full} records, {left} are left after delete");
    Ok(())
}

/// A heartbeat may be on its way while its row is removed.
async fn silos_that_come_and_go_leave_nothing_in_the_store(cx: Cx) -> Verdict {
    let table = cx.table().await?;
    let mut token = read(&table).await?.0.token;
    let late = cx.needs(Capability::RefusesOrphanHeartbeats).is_ok();
    let mut usual = 0;
    let cycles = cx.effort().cycles.max(2 * FULL);
    for counter in 1..=cycles {
        let silo = cx.entry();
        let (address, key) = (silo.address, silo.address.row_key());
        token = commit(&table, &cx.insert(&token, [silo])).await?;
        let beat = beat_of(address, counter as u64);
        table.update_i_am_alive(&beat).await?;
        token = commit(&table, &cx.remove(&token, [key])).await?;
        if late {
            refused(
                "a heartbeat of a removed row",
                table.update_i_am_alive(&beat).await,
                &[TableErrorKind::NoSuchRow],
            )?;
        }
        if counter == FULL {
            usual = cx.backend().count(table.cluster()).await?;
        }
    }
    let now = cx.backend().count(table.cluster()).await?;
    must!(
        now <= usual,
        "after {FULL} silos that came and went the store kept {usual} records, after {cycles} it \
         keeps {now}"
    );
    Ok(())
}

fn beat_of(silo: membership_core::SiloAddress, counter: u64) -> HeartbeatWrite {
    let at = WallTime::from_millis(1_763_000_000_007 + counter);
    HeartbeatWrite::Silo {
        silo,
        heartbeat: Heartbeat { counter, at },
    }
}
