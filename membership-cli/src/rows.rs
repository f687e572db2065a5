//! Which silos a command shows, and in which order.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
pub(crate) use membership::words::Concern;
use membership_core::{MembershipEntry, SiloStatus};

use crate::inspect::Inspection;

/// Order, choice and number of the rows.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RowArgs {
    /// Only silos that match all of these: status=Active,zone=z1,role=…,name=…,host=…,silo=…,cause=voted.
    /// Names, hosts and addresses match by a part
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub filter: Option<Filter>,
    /// The order: worst first, with --json by address
    #[arg(long, value_enum)]
    pub sort: Option<Sort>,
    /// Show this many rows at most
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

impl RowArgs {
    /// The rows to show, in this order if none was asked for, and how many more match.
    pub fn choose<'a>(
        &self,
        inspection: &'a Inspection,
        order: Sort,
    ) -> (Vec<&'a MembershipEntry>, usize) {
        let rows = inspection.snapshot.rows.entries();
        let mut rows: Vec<_> = rows
            .filter(|entry| self.filter.as_ref().is_none_or(|f| f.matches(entry)))
            .collect();
        self.sort.unwrap_or(order).order(&mut rows, inspection);
        let shown = self.limit.unwrap_or(usize::MAX).min(rows.len());
        let more = rows.len() - shown;
        rows.truncate(shown);
        (rows, more)
    }
}

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Whoever needs a person first: suspected, voted out lately, stale; those that left last
    #[default]
    Worst,
    /// By address and epoch
    Silo,
    /// By name
    Name,
    /// By role
    Role,
    /// By zone
    Zone,
    /// By status
    Status,
    /// The youngest first
    Started,
    /// The longest silent first
    Heartbeat,
}

impl Sort {
    /// The one after this, for a key that goes through all.
    pub fn next(self) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|s| *s == self).unwrap_or_default();
        all[(at + 1) % all.len()]
    }

    /// Sorts rows; equal ones by address.
    pub fn order(self, rows: &mut [&MembershipEntry], inspection: &Inspection) {
        rows.sort_by_key(|e| e.address);
        match self {
            Self::Worst => rows.sort_by_key(|e| concern(e, inspection)),
            Self::Silo => {}
            Self::Name => rows.sort_by(|a, b| a.info.silo_name.cmp(&b.info.silo_name)),
            Self::Role => rows.sort_by(|a, b| a.info.role.cmp(&b.info.role)),
            Self::Zone => rows.sort_by(|a, b| a.info.zone.cmp(&b.info.zone)),
            Self::Status => rows.sort_by_key(|e| e.status),
            Self::Started => rows.sort_by_key(|e| Reverse(e.start_time)),
            Self::Heartbeat => rows.sort_by_key(|e| {
                let dead = e.status == SiloStatus::Dead;
                (dead, Reverse(inspection.silence(e)))
            }),
        }
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => f.write_str(value.get_name()),
            None => Ok(()),
        }
    }
}

pub(crate) fn concern(entry: &MembershipEntry, inspection: &Inspection) -> Concern {
    let is_stale = inspection.seems_stale(entry);
    Concern::of(entry, &inspection.settings(), is_stale, inspection.now)
}

/// What rows must be like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter(Vec<Condition>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    field: Field,
    /// In lower case.
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Status,
    Zone,
    Role,
    Name,
    Host,
    Silo,
    Cause,
    /// Any of them.
    Any,
}

const FIELDS: [(&str, Field); 7] = [
    ("status", Field::Status),
    ("zone", Field::Zone),
    ("role", Field::Role),
    ("name", Field::Name),
    ("host", Field::Host),
    ("silo", Field::Silo),
    ("cause", Field::Cause),
];

impl Filter {
    /// A text that a person types: as the option, or a part of any field.
    pub fn typed(text: &str) -> Self {
        if text.trim().is_empty() {
            return Self::default();
        }
        text.parse().unwrap_or_else(|_| {
            Self(vec![Condition {
                field: Field::Any,
                value: text.trim().to_lowercase(),
            }])
        })
    }

    pub fn matches(&self, entry: &MembershipEntry) -> bool {
        self.0.iter().all(|condition| condition.matches(entry))
    }
}

impl Condition {
    fn matches(&self, entry: &MembershipEntry) -> bool {
        let value = self.value.as_str();
        let info = &entry.info;
        let part = |text: &str| text.to_lowercase().contains(value);
        let cause = || entry.death.as_ref().map_or("", |d| d.cause.as_str());
        match self.field {
            Field::Status => entry.status.to_string().to_lowercase() == value,
            Field::Zone => info.zone.to_lowercase() == value,
            Field::Role => info.role.to_lowercase() == value,
            Field::Cause => cause() == value,
            Field::Name => part(&info.silo_name),
            Field::Host => part(&info.host_name),
            Field::Silo => part(&entry.address.to_string()),
            Field::Any => {
                let status = entry.status.to_string();
                let address = entry.address.to_string();
                [
                    status.as_str(),
                    address.as_str(),
                    info.zone.as_str(),
                    info.role.as_str(),
                    info.silo_name.as_str(),
                    info.host_name.as_str(),
                    cause(),
                ]
                .into_iter()
                .any(part)
            }
        }
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let condition = |part: &str| {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{}` has no =", part.trim()))?;
            let key = key.trim();
            let field = FIELDS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(key));
            let Some((_, field)) = field else {
                let known: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
                return Err(format!("`{key}` is none of {}", known.join(", ")));
            };
            let value = value.trim().to_lowercase();
            let is_it = |status: &SiloStatus| status.to_string().to_lowercase() == value;
            if *field == Field::Status && !SiloStatus::ALL.iter().any(is_it) {
                let known = SiloStatus::ALL.map(|status| status.to_string());
                return Err(format!("no silo is `{value}`: write {}", known.join(", ")));
            }
            Ok(Condition {
                field: *field,
                value,
            })
        };
        text.split(',')
            .map(condition)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{InstanceId, WallTime};

    fn active(zone: &str) -> MembershipEntry {
        let address = "10.0.0.1:7100@5".parse().unwrap();
        let mut entry = MembershipEntry::new(address, InstanceId::new(1), WallTime::from_millis(0));
        entry.status = SiloStatus::Active;
        zone.clone_into(&mut entry.info.zone);
        entry
    }

    #[test]
    fn a_filter_is_read_and_applied() {
        let silo = active("Z1");
        for (filter, is_match) in [
            ("status=active", true),
            ("status=Active, zone=z1", true),
            ("status=Joining", false),
            ("zone=z", false),
            ("silo=0.1:71", true),
            ("name=nobody", false),
        ] {
            let parsed: Filter = filter.parse().unwrap();
            assert_eq!(parsed.matches(&silo), is_match, "{filter}");
        }
        for (filter, error) in [
            ("zone", "no ="),
            ("colour=red", "none of status, zone"),
            ("status=actve", "Joining, Active"),
        ] {
            let said = filter.parse::<Filter>().unwrap_err();
            assert!(said.contains(error), "{said}");
        }
        assert!(Filter::typed("").matches(&silo));
        assert!(Filter::typed("7100").matches(&silo));
        assert!(!Filter::typed("7200").matches(&silo));
    }

    #[test]
    fn every_order_is_reached_by_the_key() {
        let mut sort = Sort::default();
        let mut seen = Vec::new();
        for _ in Sort::value_variants() {
            seen.push(sort);
            sort = sort.next();
        }
        assert_eq!(
            (seen.as_slice(), sort),
            (Sort::value_variants(), Sort::Worst)
        );
    }
}
