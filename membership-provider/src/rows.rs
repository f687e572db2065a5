//! Stored rows and heartbeats as the model's. Clauses T8 and T12.

use std::collections::{BTreeMap, HashSet};

use membership_core::{Heartbeat, Heartbeats, Row, Rows, WallTime};

/// The row that a store holds under `key`: the known one if it has the same text, so that it is not
/// decoded again.
///
/// ```
/// use membership_core::{Row, Rows};
/// use membership_provider::decode_row;
///
/// let known: Rows = [Row::decode("key", "text")].into_iter().collect();
/// let row = decode_row("key", "text", &known);
/// assert!(row.is_same(known.by_key("key").unwrap()));
/// ```
#[must_use]
pub fn decode_row(key: &str, body: &str, known: &Rows) -> Row {
    match known.by_key(key) {
        Some(row) if row.body() == body => row.clone(),
        _ => Row::decode(key, body),
    }
}

/// All rows of a table, of which those with a known text are not decoded again. `stored` are keys
/// and texts.
///
/// ```
/// use membership_core::Rows;
/// use membership_provider::merge_rows;
///
/// let first = merge_rows(&[("a", "1"), ("b", "2")], &Rows::new());
/// let second = merge_rows(&[("a", "1"), ("c", "3")], &first);
/// assert_eq!(second.len(), 2);
/// assert!(second.by_key("a").unwrap().is_same(first.by_key("a").unwrap()));
/// ```
#[must_use]
pub fn merge_rows<K: AsRef<str>, B: AsRef<str>>(stored: &[(K, B)], known: &Rows) -> Rows {
    let mut all = known.clone();
    for (key, body) in stored {
        let (key, body) = (key.as_ref(), body.as_ref());
        if all.by_key(key).is_none_or(|row| row.body() != body) {
            all.insert(Row::decode(key, body));
        }
    }
    if all.len() != stored.len() {
        let keys: HashSet<&str> = stored.iter().map(|(key, _)| key.as_ref()).collect();
        let gone: Vec<String> = all
            .iter()
            .map(Row::key)
            .filter(|key| !keys.contains(key))
            .map(str::to_owned)
            .collect();
        for key in gone {
            all.remove(&key);
        }
    }
    all
}

/// The heartbeat that a text means. Only the counter decides anything: a damaged time is read as
/// 1970, a damaged counter as 0.
///
/// ```
/// use membership_provider::stored_heartbeat;
///
/// assert_eq!(stored_heartbeat("17 2026-11-21T01:02:03.004Z").counter, 17);
/// assert_eq!(stored_heartbeat("17 damaged").counter, 17);
/// assert_eq!(stored_heartbeat("damaged").counter, 0);
/// ```
#[must_use]
pub fn stored_heartbeat(text: &str) -> Heartbeat {
    text.parse().unwrap_or_else(|_| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        Heartbeat {
            counter: digits.parse().unwrap_or(0),
            at: WallTime::from_millis(0),
        }
    })
}

/// Heartbeats by row key, and the cluster's own cell. Heartbeats without a row are orphans (clause
/// T8). Without `rows` none is: a read that does not know the rows cannot tell.
///
/// ```
/// use membership_core::Rows;
/// use membership_provider::{shown_heartbeats, stored_heartbeat};
///
/// let stored = [("10.0.0.1:7100@1", stored_heartbeat("5 x"))];
/// let shown = shown_heartbeats(stored, Some("cell".to_owned()), &Rows::new());
/// assert!(shown.silos.is_empty() && shown.cluster.as_deref() == Some("cell"));
/// assert_eq!(shown.orphans.len(), 1);
/// assert_eq!(shown_heartbeats(stored, None, None).silos.len(), 1);
/// ```
pub fn shown_heartbeats<'a, 'r>(
    stored: impl IntoIterator<Item = (&'a str, Heartbeat)>,
    cell: Option<String>,
    rows: impl Into<Option<&'r Rows>>,
) -> Heartbeats {
    let rows = rows.into();
    let has_row = |key| rows.is_none_or(|rows| rows.by_key(key).is_some());
    let stored = stored.into_iter();
    let stored = stored.filter_map(|(key, beat)| Some((key.parse().ok()?, beat, has_row(key))));
    Heartbeats::from_stored(stored, cell)
}

/// The heartbeats of a cluster as a store holds them, by row key, and the cluster's own cell.
///
/// ```
/// use membership_core::Rows;
/// use membership_provider::StoredHeartbeats;
///
/// let mut stored = StoredHeartbeats::default();
/// stored.insert("10.0.0.1:7100@1", "5 damaged");
/// assert_eq!(stored.get("10.0.0.1:7100@1").map(|heartbeat| heartbeat.counter), Some(5));
/// assert!(stored.shown(&Rows::new()).silos.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredHeartbeats {
    silos: BTreeMap<String, Heartbeat>,
    /// The text of the cluster's own cell.
    pub cell: Option<String>,
}

impl StoredHeartbeats {
    /// From cells with a name and a text: one for each row, and one called `own` for the cluster.
    ///
    /// ```
    /// use membership_provider::StoredHeartbeats;
    ///
    /// let cells = [("10.0.0.1:7100@1", "5 x"), ("cluster", "text")];
    /// let stored = StoredHeartbeats::from_cells(cells, "cluster");
    /// assert_eq!(stored.shown(None).silos.len(), 1);
    /// assert_eq!(stored.cell.as_deref(), Some("text"));
    /// ```
    pub fn from_cells<N, T>(cells: impl IntoIterator<Item = (N, T)>, own: &str) -> Self
    where
        N: Into<String>,
        T: Into<String>,
    {
        let mut stored = Self::default();
        for (name, text) in cells {
            let (name, text) = (name.into(), text.into());
            if name == own {
                stored.cell = Some(text);
            } else {
                stored.insert(name, &text);
            }
        }
        stored
    }

    /// The text of a row's heartbeat.
    pub fn insert(&mut self, key: impl Into<String>, text: &str) {
        self.silos.insert(key.into(), stored_heartbeat(text));
    }

    /// The heartbeat of a row.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Heartbeat> {
        self.silos.get(key).copied()
    }

    /// As [`shown_heartbeats`].
    #[must_use]
    pub fn shown<'r>(&self, rows: impl Into<Option<&'r Rows>>) -> Heartbeats {
        let silos = self.silos.iter();
        let silos = silos.map(|(key, heartbeat)| (key.as_str(), *heartbeat));
        shown_heartbeats(silos, self.cell.clone(), rows)
    }
}

impl From<&Heartbeats> for StoredHeartbeats {
    fn from(shown: &Heartbeats) -> Self {
        let silos = shown.silos.iter();
        Self {
            silos: silos
                .map(|(silo, heartbeat)| (silo.row_key(), *heartbeat))
                .collect(),
            cell: shown.cluster.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use membership_core::{InstanceId, MembershipEntry, SiloAddress};

    use super::*;

    fn stored(port: u16, name: &str) -> (String, String) {
        let silo = SiloAddress::new([127, 0, 0, 1].into(), port, 1);
        let mut entry = MembershipEntry::new(silo, InstanceId::new(1), WallTime::default());
        entry.info.silo_name = name.to_owned();
        (silo.row_key(), Row::encode(entry).body().to_owned())
    }

    #[test]
    fn rows_are_decoded_once() {
        let damaged = ("damaged".to_owned(), "{".to_owned());
        let first = merge_rows(&[stored(1, "a"), stored(2, "b"), damaged], &Rows::new());
        assert_eq!((first.len(), first.undecodable().count()), (3, 1));
        let now = [stored(1, "a"), stored(3, "c")];
        let second = merge_rows(&now, &first);
        assert_eq!(second, merge_rows(&now, &Rows::new()));
        let key = &now[0].0;
        assert!(
            first
                .by_key(key)
                .unwrap()
                .is_same(second.by_key(key).unwrap())
        );
        let changed = merge_rows(&[stored(1, "other"), stored(3, "c")], &second);
        assert_eq!(
            changed,
            merge_rows(&[stored(1, "other"), stored(3, "c")], &Rows::new())
        );
        assert_eq!(merge_rows(&now[..1], &changed).len(), 1, "one row is gone");
        assert!(merge_rows::<&str, &str>(&[], &changed).is_empty());
    }

    #[test]
    fn a_damaged_heartbeat_keeps_its_counter() {
        let heartbeat = Heartbeat {
            counter: 5,
            at: WallTime::from_millis(1_763_000_000_123),
        };
        assert_eq!(stored_heartbeat(&heartbeat.to_string()), heartbeat);
        let damaged = Heartbeat {
            counter: 17,
            at: WallTime::from_millis(0),
        };
        assert_eq!(stored_heartbeat("17 nonsense"), damaged);
        assert_eq!(stored_heartbeat("nonsense").counter, 0);
    }

    #[test]
    fn heartbeats_without_a_row_are_orphans() {
        let rows = merge_rows(
            &[stored(1, "a"), ("no silo".to_owned(), "{".to_owned())],
            &Rows::new(),
        );
        let beat = stored_heartbeat("1 x");
        let keys = ["127.0.0.1:1@1", "127.0.0.1:2@1", "no silo"];
        let shown = shown_heartbeats(keys.map(|key| (key, beat)), None, &rows);
        let orphan = SiloAddress::new([127, 0, 0, 1].into(), 2, 1);
        assert!(shown.silos.len() == 1 && shown.orphans.iter().eq([&orphan]));
    }
}
