//! The guarantees that a store states are not weaker than those that it must have. T2, T6.

use membership_core::{Durability, Guarantees, MembershipTable, ReadRequest, Recency};

use crate::case::{Case, Cx, Verdict, case, must};
use crate::{Reason, Stop};

pub(super) const CASES: &[Case] = &[case!(the_store_guarantees_what_it_must: T2 T6)];

/// A client may learn from the server what it can guarantee, so it is asked before and after it
/// has read.
async fn the_store_guarantees_what_it_must(cx: Cx) -> Verdict {
    let required = cx.backend().required_guarantees();
    let table = cx.table().await?;
    for (client, who) in [
        (&table, "the client that made the table"),
        (&cx.another(&table).await?, "another client"),
    ] {
        holds(&**client, required, who)?;
        let newest = ReadRequest::all().with_barrier(true);
        client.read(&newest).await?;
        holds(&**client, required, who)?;
    }
    let stated = table.guarantees();
    cx.measured(format!(
        "reads {}, acknowledged commits {}",
        match stated.reads {
            Recency::Linearizable => "linearizable",
            _ => "monotonic per client",
        },
        match stated.durability {
            Durability::Kept => "kept",
            _ => "may be lost",
        }
    ));
    match required {
        Guarantees {
            reads: Recency::MonotonicPerClient,
            durability: Durability::MayBeLost,
            ..
        } => Err(Stop::NotApplicable(Reason::NotGuaranteed)),
        _ => Ok(()),
    }
}

fn holds(table: &dyn MembershipTable, required: Guarantees, who: &str) -> Verdict {
    let stated = table.guarantees();
    let is_recent =
        required.reads != Recency::Linearizable || stated.reads == Recency::Linearizable;
    let is_kept = required.durability != Durability::Kept || stated.durability == Durability::Kept;
    must!(
        is_recent && is_kept,
        "{who} states {stated:?}, and this store must guarantee {required:?}: cure the store or its options, or let the \
         backend require less (`Backend::required_guarantees`)"
    );
    Ok(())
}
