//! The commands that the table consists of: documents, without input or output.
//!
//! Each write names the state it is for in its filter, so that the server compares and writes in one step (clauses T2, T3).

use std::time::Duration;

use membership_core::encoding::LAYOUT;
use membership_core::{
    CommitRequest, RECENT_COMMITS, Recency, RowChange, SharedSettings, TableError, VersionRow,
    VersionToken,
};
use mongodb::bson::{Bson, Document, Timestamp, doc};

use crate::codec::{MARK, name, plain};

/// The two documents of a cluster, where they are, and how they are read and written.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) collection: String,
    /// The cluster's document.
    pub(crate) table: String,
    /// The document of its heartbeats. No cluster's name has a slash in it.
    pub(crate) beats: String,
    /// While a benchmark runs.
    pub(crate) yardstick: String,
    /// For how long the server may wait for others.
    pub(crate) patience: Duration,
}

/// How recent a read is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    /// The primary, once a majority has confirmed that it is the primary still.
    Linearizable,
    /// What a majority has; not before this time.
    Majority(Option<Timestamp>),
    /// Whatever the only server has.
    Local,
}

/// What a read is to give.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want<'a> {
    /// The version row and all rows, and if asked for all heartbeats.
    All { heartbeats: bool },
    /// The same without the rows if the version is still this one.
    Since {
        token: &'a VersionToken,
        heartbeats: bool,
    },
    /// The version row and one row with its heartbeat.
    Row(&'a str),
    /// The document of heartbeats alone.
    Beats,
}

impl From<Recency> for Concern {
    fn from(reads: Recency) -> Self {
        match reads {
            Recency::Linearizable => Self::Linearizable,
            Recency::MonotonicPerClient => Self::Majority(None),
        }
    }
}

impl Place {
    fn millis(&self) -> i64 {
        i64::try_from(self.patience.as_millis())
            .unwrap_or(i64::MAX)
            .max(1)
    }

    /// A majority has it in its journal, or says in time that it has not.
    fn confirmed(&self) -> Document {
        doc! { "w": "majority", "j": true, "wtimeout": self.millis() }
    }

    fn find(&self, filter: Document, concern: Concern) -> Document {
        let concern = match concern {
            Concern::Linearizable => doc! { "level": "linearizable" },
            Concern::Majority(None) => doc! { "level": "majority" },
            Concern::Majority(Some(time)) => doc! { "level": "majority", "afterClusterTime": time },
            Concern::Local => doc! { "level": "local" },
        };
        doc! { "find": &self.collection, "filter": filter, "limit": 2, "readConcern": concern, "maxTimeMS": self.millis() }
    }

    /// Reads what is wanted, both documents in one request.
    pub(crate) fn read(&self, want: Want<'_>, concern: Concern) -> Document {
        let both = || doc! { "_id": { "$in": [&self.table, &self.beats] } };
        let one = |id: &str| doc! { "_id": id };
        let filter = match want {
            Want::All { heartbeats: false }
            | Want::Since {
                heartbeats: false, ..
            } => one(&self.table),
            Want::Beats => one(&self.beats),
            _ => both(),
        };
        let mut command = self.find(filter, concern);
        match want {
            Want::All { .. } | Want::Beats => {}
            Want::Since { token, .. } => {
                let members = doc! { "$cond": [is_version(token), "$$REMOVE", "$members"] };
                command.insert("projection", doc! { MARK: 1, "version_row": 1, "members": members, "table_id": 1, "beats": 1, "cell": 1 });
            }
            Want::Row(key) => {
                let name = name(key);
                let mut fields = doc! { MARK: 1, "version_row": 1, "table_id": 1 };
                fields.insert(format!("members.{name}"), 1);
                fields.insert(format!("beats.{name}"), 1);
                command.insert("projection", fields);
            }
        }
        command
    }

    /// Any document of the collection that is not ours.
    pub(crate) fn stranger(&self, concern: Concern) -> Document {
        let mut command = self.find(doc! { MARK: { "$exists": false } }, concern);
        command.extend(doc! { "limit": 1, "projection": { "_id": 1 } });
        command
    }

    /// A cursor that nobody reads to its end.
    pub(crate) fn forget_cursor(&self, cursor: i64) -> Document {
        doc! { "killCursors": &self.collection, "cursors": [cursor] }
    }

    pub(crate) fn insert(&self, documents: Vec<Document>) -> Document {
        doc! { "insert": &self.collection, "documents": documents, "ordered": true, "writeConcern": self.confirmed() }
    }

    fn update(&self, filter: Document, change: Document, upsert: bool) -> Document {
        let mut one = doc! { "q": filter, "u": change };
        if upsert {
            one.insert("upsert", true);
        }
        doc! { "update": &self.collection, "updates": [one], "writeConcern": self.confirmed() }
    }

    fn delete(&self, filters: impl IntoIterator<Item = Document>) -> Document {
        let each: Vec<Document> = filters
            .into_iter()
            .map(|filter| doc! { "q": filter, "limit": 1 })
            .collect();
        doc! { "delete": &self.collection, "deletes": each, "ordered": true, "writeConcern": self.confirmed() }
    }

    /// The update that is a commit: matches the version it is based on, and only if each row is there or not as it must be.
    ///
    /// # Errors
    /// Plain data; cannot fail.
    pub(crate) fn commit(
        &self,
        request: &CommitRequest,
        rows: usize,
    ) -> Result<Document, TableError> {
        let expected = &request.expected;
        let mut filter = doc! {
            "_id": &self.table,
            MARK: { "$exists": true },
            "version_row.table_id": expected.table_id().to_string(),
            "version_row.version": whole(expected.version()),
            "version_row.min_layout": { "$lte": i64::from(LAYOUT) },
            "version_row.deleting": { "$ne": true },
        };
        if expected.version() > 0 {
            let last =
                doc! { "version": whole(expected.version()), "id": expected.commit().to_string() };
            filter.insert("version_row.recent", doc! { "$elemMatch": last });
        }
        let (mut set, mut unset) = (
            doc! { "version_row.version": whole(request.makes()) },
            Document::new(),
        );
        let mut more = 0_i64;
        for change in &request.changes {
            let field = format!("members.{}", name(change.key()));
            filter.insert(
                field.clone(),
                doc! { "$exists": !matches!(change, RowChange::Insert(_)) },
            );
            match change {
                RowChange::Insert(row) | RowChange::Update(row) => {
                    more += i64::from(matches!(change, RowChange::Insert(_)));
                    set.insert(field, row.body());
                }
                RowChange::Remove(_) => {
                    more -= 1;
                    unset.insert(field, "");
                }
            }
        }
        if more > 0 {
            let most = i64::try_from(rows).unwrap_or(i64::MAX).saturating_sub(more);
            filter.insert("version_row.row_count", doc! { "$lte": most });
        }
        if let Some(settings) = &request.settings {
            set.insert("version_row.settings", plain(settings)?);
        }
        if let Some(core) = &request.core {
            match core.is_empty() {
                true => drop(unset.insert("version_row.core", "")),
                false => drop(set.insert("version_row.core", core.as_str())),
            }
        }
        let recent = doc! { "$each": [record(request)?], "$slice": -i64::try_from(RECENT_COMMITS).unwrap_or(16) };
        let mut change = doc! {
            "$set": set,
            "$inc": { "version_row.row_count": more },
            "$max": { "version_row.layout": i64::from(LAYOUT) },
            "$push": { "version_row.recent": recent },
        };
        if !unset.is_empty() {
            change.insert("$unset", unset);
        }
        Ok(self.update(filter, change, false))
    }

    /// Keeps the larger of the stored heartbeat and this one. With `born`, makes the document if it is missing, with these fields.
    pub(crate) fn beat(&self, key: &str, beat: Bson, born: Option<Document>) -> Document {
        let mut larger = Document::new();
        larger.insert(format!("beats.{}", name(key)), beat);
        self.change_beats(doc! { "$max": larger }, born)
    }

    /// Overwrites the cluster's own cell.
    pub(crate) fn cell(&self, text: &str, born: Option<Document>) -> Document {
        self.change_beats(doc! { "$set": { "cell": text } }, born)
    }

    fn change_beats(&self, mut change: Document, born: Option<Document>) -> Document {
        let upsert = born.is_some();
        if let Some(born) = born {
            change.insert("$setOnInsert", born);
        }
        self.update(doc! { "_id": &self.beats }, change, upsert)
    }

    /// Heartbeats of rows that are gone.
    pub(crate) fn forget_beats<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Document {
        let gone: Document = keys
            .map(|key| (format!("beats.{}", name(key)), Bson::String(String::new())))
            .collect();
        self.update(doc! { "_id": &self.beats }, doc! { "$unset": gone }, false)
    }

    /// The document of heartbeats as that of a new table, in the place of one that was left behind.
    pub(crate) fn renew_beats(&self, fresh: Document) -> Document {
        self.update(doc! { "_id": &self.beats }, fresh, false)
    }

    /// Marks the version row of this table, if it is still as it was seen: nothing works any more except `delete`.
    pub(crate) fn mark_deleting(&self, row: &VersionRow) -> Document {
        let filter = doc! {
            "_id": &self.table,
            "version_row.table_id": row.table_id.to_string(),
            "version_row.version": whole(row.version),
        };
        self.update(
            filter,
            doc! { "$set": { "version_row.deleting": true } },
            false,
        )
    }

    /// Removes the cluster, heartbeats first: its document only if the version row is still what was seen.
    pub(crate) fn remove(&self, version_row: Option<&Bson>, beats_of: Option<&Bson>) -> Document {
        let seen = |value: Option<&Bson>| {
            value.map_or_else(|| doc! { "$exists": false }, |value| doc! { "$eq": value })
        };
        let beats = doc! { "_id": &self.beats, "table_id": seen(beats_of) };
        self.delete([
            beats,
            doc! { "_id": &self.table, "version_row": seen(version_row) },
        ])
    }

    /// Removes heartbeats that no cluster has.
    pub(crate) fn remove_beats(&self, beats_of: Option<&Bson>) -> Document {
        let seen =
            beats_of.map_or_else(|| doc! { "$exists": false }, |value| doc! { "$eq": value });
        self.delete([doc! { "_id": &self.beats, "table_id": seen }])
    }

    /// The store's own cheapest write, of the same durability. What changes nothing would not be written.
    pub(crate) fn yardstick_write(&self, content: &str) -> Document {
        let change = doc! { "$set": { "content": content }, "$inc": { "writes": 1_i64 }, "$setOnInsert": crate::codec::marks(None) };
        self.update(doc! { "_id": &self.yardstick }, change, true)
    }

    /// And its cheapest read.
    pub(crate) fn yardstick_read(&self, concern: Concern) -> Document {
        self.find(doc! { "_id": &self.yardstick }, concern)
    }

    pub(crate) fn yardstick_remove(&self) -> Document {
        self.delete([doc! { "_id": &self.yardstick }])
    }
}

/// Whether the document that is read has this version.
fn is_version(token: &VersionToken) -> Document {
    let mut same = vec![
        doc! { "$eq": ["$version_row.table_id", token.table_id().to_string()] },
        doc! { "$eq": ["$version_row.version", whole(token.version())] },
    ];
    if token.version() > 0 {
        // What somebody damaged has no last commit, and is no error here.
        let ids = "$version_row.recent.id";
        let last =
            doc! { "$cond": [{ "$isArray": ids }, { "$arrayElemAt": [ids, -1] }, Bson::Null] };
        same.push(doc! { "$eq": [last, token.commit().to_string()] });
    }
    doc! { "$and": same }
}

/// Versions end at 2^53.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The record that a commit leaves in the version row.
fn record(request: &CommitRequest) -> Result<Bson, TableError> {
    let mut base = VersionRow::initial(request.expected.table_id(), SharedSettings::default());
    base.version = request.expected.version();
    plain(&request.next_version_row(&base).recent.last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{CommitId, InstanceId, MembershipEntry, SiloAddress, TableId, WallTime};

    fn place() -> Place {
        Place {
            collection: "membership".to_owned(),
            table: "billing~-blue".to_owned(),
            beats: "billing~-blue/heartbeats".to_owned(),
            yardstick: "billing~-blue/yardstick".to_owned(),
            patience: Duration::from_secs(4),
        }
    }

    fn entry(port: u16) -> MembershipEntry {
        MembershipEntry::new(
            SiloAddress::new([10, 0, 0, 1].into(), port, 1),
            InstanceId::new(1),
            WallTime::default(),
        )
    }

    #[test]
    fn a_commit_names_what_it_is_based_on() {
        let start = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let first =
            CommitRequest::new(start.token(&[]), CommitId::new(1), None, [entry(1)], [], []);
        let next = first.next_version_row(&start);
        let second = CommitRequest::new(
            next.token(&[]),
            CommitId::new(2),
            None,
            [entry(2)],
            [],
            [entry(1).address.row_key()],
        );
        let command = place().commit(&second, 10).unwrap();
        let update = command.get_array("updates").unwrap()[0]
            .as_document()
            .unwrap();
        let filter = update.get_document("q").unwrap();
        assert_eq!(filter.get_i64("version_row.version").unwrap(), 1);
        let last = filter
            .get_document("version_row.recent")
            .unwrap()
            .get_document("$elemMatch")
            .unwrap();
        assert_eq!(last.get_str("id").unwrap(), CommitId::new(1).to_string());
        let exists = |port| {
            filter
                .get_document(format!("members.10%2E0%2E0%2E1:{port}@1"))
                .unwrap()
                .get_bool("$exists")
                .unwrap()
        };
        assert!(exists(1) && !exists(2));
        // One in, one out: the number of rows cannot exceed anything.
        assert!(!filter.contains_key("version_row.row_count"));
        let change = update.get_document("u").unwrap();
        assert!(
            change
                .get_document("$unset")
                .unwrap()
                .contains_key("members.10%2E0%2E0%2E1:1@1")
        );
        let concern = command.get_document("writeConcern").unwrap();
        assert!(
            concern.get_str("w").unwrap() == "majority"
                && concern.get_bool("j").unwrap()
                && concern.get_i64("wtimeout").unwrap() == 4000
        );
    }

    #[test]
    fn reads_are_one_command_for_both_documents() {
        let token = VersionRow::initial(TableId::new(7), SharedSettings::default()).token(&[]);
        for want in [
            Want::All { heartbeats: true },
            Want::Since {
                token: &token,
                heartbeats: true,
            },
            Want::Row("k"),
        ] {
            let command = place().read(want, Concern::Linearizable);
            let ids = command
                .get_document("filter")
                .unwrap()
                .get_document("_id")
                .unwrap()
                .get_array("$in")
                .unwrap();
            assert_eq!(ids.len(), 2);
            assert_eq!(
                command
                    .get_document("readConcern")
                    .unwrap()
                    .get_str("level")
                    .unwrap(),
                "linearizable"
            );
        }
    }
}
