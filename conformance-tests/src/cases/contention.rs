//! Many writers that compete for the next version. T1, T4.

use crate::case::{Case, Cx, Verdict, case};

pub(super) const CASES: &[Case] = &[case!(many_writers_get_their_turns: T1 T2 T4)];

async fn many_writers_get_their_turns(cx: Cx) -> Verdict {
    let (cluster, effort) = (cx.cluster()?, cx.effort());
    cx.measured(
        crate::contention::run(cx.backend(), &cluster, effort.writers, effort.contention).await?,
    );
    Ok(())
}
