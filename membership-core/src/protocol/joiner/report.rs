//! Reports what a join waits for: progress, and the error at the deadline.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Joiner, Stage};
use crate::SiloAddress;
use crate::protocol::context::Ctx;
use crate::protocol::notice::{JoinError, JoinProgress, Notice, TableErrorText};
use crate::protocol::timers::Timer;
use crate::protocol::unreached::Unreached;

/// How often progress is reported.
pub(super) const PROGRESS_PERIOD: Duration = Duration::from_secs(5);

impl Joiner {
    pub(super) fn verdict(&self, ctx: &Ctx, required: &BTreeSet<SiloAddress>) -> JoinError {
        let elapsed = ctx.mono().since(self.began);
        match (&self.stage, &self.last_table_error) {
            (Stage::MeetMyself, _) => self.nobody_home(ctx),
            (Stage::Initialize | Stage::FirstRead | Stage::Insert, Some(e)) => {
                JoinError::Table(TableErrorText(e.clone()))
            }
            _ => {
                let unreached = self.contacts.unreached(required);
                if unreached.is_empty() {
                    JoinError::TimedOut {
                        elapsed,
                        waiting_for: self.waiting_for(&unreached),
                    }
                } else {
                    JoinError::Unreachable { elapsed, unreached }
                }
            }
        }
    }

    pub(super) fn waiting_for(&self, unreached: &[Unreached]) -> String {
        match (&self.stage, &self.last_table_error) {
            (Stage::MeetMyself, _) => "an answer from my own advertised address".to_owned(),
            (Stage::Initialize | Stage::FirstRead | Stage::Insert, Some(e)) => {
                format!("the membership table ({e})")
            }
            (Stage::Initialize | Stage::FirstRead | Stage::Insert, None) => {
                "the membership table".to_owned()
            }
            (Stage::WatchAddress { .. }, _) => {
                "an older silo of another host at my address to beat or not".to_owned()
            }
            (Stage::Failing, _) => "my row to be ended".to_owned(),
            _ if unreached.is_empty() => "the commit that makes me Active".to_owned(),
            _ => format!("two-way contact with {} Active silos", unreached.len()),
        }
    }

    pub(crate) fn on_progress_timer(&mut self, ctx: &mut Ctx, required: &BTreeSet<SiloAddress>) {
        if self.is_joining() {
            let unreached = if self.stage == Stage::Contact {
                self.contacts.unreached(required)
            } else {
                Vec::new()
            };
            let waiting_for = self.waiting_for(&unreached) + &zones_of(ctx, &unreached);
            ctx.tell(Notice::JoinProgress(JoinProgress {
                elapsed: ctx.mono().since(self.began),
                waiting_for,
                unreached,
            }));
            ctx.set_timer(Timer::JoinProgress, PROGRESS_PERIOD);
        }
    }
}

/// In which zones those are that are not reached, where a silo meets some of each: part of the network
/// usually fails for a zone as a whole.
fn zones_of(ctx: &Ctx, unreached: &[Unreached]) -> String {
    if ctx.variant.full_check_limit.is_none() {
        return String::new();
    }
    let entries = unreached
        .iter()
        .filter_map(|one| ctx.view.as_ref()?.get(&one.silo));
    let zones: BTreeSet<&str> = entries.map(|e| e.info.zone.as_str()).collect();
    let named: Vec<&str> = zones.iter().copied().filter(|z| !z.is_empty()).collect();
    if named.is_empty() || named.len() < zones.len() {
        return String::new();
    }
    format!(" in zone {}", named.join(", "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::hooks::ProtocolVariant;
    use crate::protocol::{Identity, Setup};
    use crate::*;

    #[test]
    fn the_zones_are_named_where_all_have_one() {
        let silo = |n| SiloAddress::new([10, 0, 0, n].into(), 7100, 1);
        let rows: Rows =
            ["a", "b", "b", ""]
                .iter()
                .zip(1..)
                .fold(Rows::new(), |mut rows, (zone, n)| {
                    let instance = InstanceId::new(n.into());
                    let mut one = MembershipEntry::new(silo(n), instance, WallTime::from_millis(1));
                    one.info.zone = (*zone).to_owned();
                    rows.insert(Row::encode(one));
                    rows
                });
        let cluster = ClusterName::new("default", "tests").unwrap();
        let me = Identity::new(
            cluster,
            silo(9).endpoint(),
            InstanceId::new(9),
            SiloInfo::default(),
        );
        let limits = TableLimits::new(100, 65_536, 1 << 20, 5_000);
        let key = ClusterKey::new([7; 32]);
        let mut ctx = Ctx::new(Setup::new(me, Config::default(), limits, 7, key));
        let shared = SharedSettings::default();
        let row = InitializeRequest::new(TableId::new(1), shared, key).version_row();
        ctx.view = Some(ClusterView::new(Snapshot::new(row.token(&[]), row, rows)));
        let unreached = |all: &[u8]| -> Vec<Unreached> {
            let one = |n: &u8| Unreached {
                silo: silo(*n),
                i_reach_it: true,
                it_reaches_me: false,
                last_error: None,
            };
            all.iter().map(one).collect()
        };
        assert_eq!(zones_of(&ctx, &unreached(&[2, 3])), "", "everybody is met");
        ctx.variant = ProtocolVariant {
            full_check_limit: Some(5),
            ..ProtocolVariant::STANDARD
        };
        assert_eq!(zones_of(&ctx, &unreached(&[2, 3])), " in zone b");
        assert_eq!(zones_of(&ctx, &unreached(&[1, 2])), " in zone a, b");
        assert_eq!(zones_of(&ctx, &unreached(&[2, 4])), "");
    }
}
