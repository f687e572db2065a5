//! A large table that changes all the time: reads are whole, and take few round trips. T6.

use crate::case::{Case, Cx, Verdict, case, must};
use crate::history::{self, Load, Reads, load};

pub(super) const CASES: &[Case] =
    &[case!(a_large_table_is_read_whole_while_it_changes: T2 T3 T4 T6)];

/// The minimum size of a row, in bytes.
const BYTES: usize = 2_048;
const WRITERS: usize = 4;
/// The round trips that a read may take for each page of the store: one, and two more because of
/// concurrent commits.
const TRIPS_PER_PAGE: u64 = 3;
/// A hundred counted reads may have one late. Of a slow store one history has fewer: if one of them is
/// late, more histories follow until there are so many, but no more than this.
const ENOUGH: u64 = 100;
const ROUNDS: u64 = 20;

/// More than one in a hundred.
const fn too_many(some: u64, all: u64) -> bool {
    some * 100 > all
}

async fn a_large_table_is_read_whole_while_it_changes(cx: Cx) -> Verdict {
    let effort = cx.effort();
    let limits = cx.client(&cx.cluster()?).await?.limits();
    let bytes = BYTES.min(limits.bytes_per_row / 2);
    let mut plan = Load {
        rows: effort.busy_rows.min(limits.rows / 2).max(8),
        bytes,
        writers: WRITERS,
        duration: effort.busy,
        round: 0,
    };
    let table = load::filled(&cx, plan.rows, plan.bytes).await?;
    let pages = cx.backend().pages(plan.rows, plan.bytes + 1_024).max(1);
    let (mut reads, mut commits, mut conflicts) = (Reads::default(), 0, 0);
    loop {
        let (history, these) = load::run(&cx, &table, &plan, TRIPS_PER_PAGE * pages).await?;
        let checked = history::explained(&history)?;
        must!(
            checked.commits > 0 && checked.reads > 0,
            "the history is too small for a check: {checked:?}"
        );
        reads.add(these);
        commits += checked.commits;
        conflicts += checked.conflicts;
        plan.round += 1;
        let is_judged = reads.late != 1 || reads.counted >= ENOUGH;
        if is_judged || plan.round >= ROUNDS {
            break;
        }
    }
    let trips = if reads.counted > 0 {
        format!(", at most {} round trips", reads.most)
    } else {
        String::new()
    };
    let figures = format!(
        "{} rows of {} bytes, {pages} pages: {} commits, {} conflicts, {} reads, {} failed, {} of {} late{trips}",
        plan.rows,
        plan.bytes,
        commits,
        conflicts,
        reads.all,
        reads.failed,
        reads.late,
        reads.counted
    );
    cx.measured(&figures);
    must!(
        !too_many(reads.late, reads.counted),
        "too many reads took more than {TRIPS_PER_PAGE} round trips per page: {figures}"
    );
    must!(
        !too_many(reads.failed, reads.all),
        "too many reads failed: {figures}"
    );
    Ok(())
}
