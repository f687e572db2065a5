//! Whether silos reach each other: a partial partition, as the silos themselves know it.

use membership::transport::Security;
use membership_core::ClusterName;

use super::{Finding, report};
use crate::exit::Failure;
use crate::inspect::Inspection;
use crate::reach;
use crate::session::Session;

/// Asks every Active silo; gives the number of problems.
pub(super) async fn check(
    inspection: &Inspection,
    cluster: &ClusterName,
    security: Security,
    session: &mut Session,
) -> Result<usize, Failure> {
    let Some(reach) = reach::ask(inspection, cluster, security).await? else {
        return Ok(0);
    };
    let finding = match (reach.nobody_answered(), reach.is_partial()) {
        (true, _) => Finding::Note,
        (false, true) => Finding::Bad,
        (false, false) => Finding::Good,
    };
    report(session, finding, "reach", &reach.summary());
    for line in reach.lines() {
        report(session, Finding::Bad, "reach", &line);
    }
    Ok(usize::from(reach.is_partial()))
}
