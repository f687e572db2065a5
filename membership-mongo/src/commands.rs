//! The commands that the table sends: documents, without input or output.
//!
//! The filter of each write names the state that it expects, so that the server compares and
//! writes in one step (clauses T2, T3).

use std::time::Duration;

use membership_core::encoding::LAYOUT;
use membership_core::{
    CommitRequest, RECENT_COMMITS, RowChange, TableError, VersionRow, VersionToken,
};
use mongodb::bson::{Bson, Document, Timestamp, doc};

use crate::codec::{MARK, plain};
use crate::keys::{Keys, name};

/// The commands for one cluster's documents.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    pub(crate) collection: String,
    pub(crate) keys: Keys,
    /// How long the server may wait for other members.
    pub(crate) server_timeout: Duration,
}

/// How recent a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    /// The primary answers after a majority has confirmed that it is still the primary.
    Linearizable,
    /// What a majority has, and not older than this time.
    Majority(Option<Timestamp>),
    /// What the only member that can be the primary has in its journal. That is as recent as
    /// `Linearizable` if its set still has the configuration of this version.
    Sole(i64),
    /// What the only server has.
    Local,
}

/// What a read must return.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want<'a> {
    /// The version row and all rows, with all heartbeats if asked for.
    All { heartbeats: bool },
    /// The same, without the rows if the version is still this one.
    Since {
        token: &'a VersionToken,
        heartbeats: bool,
    },
    /// The version row and one row with its heartbeat.
    Row(&'a str),
    /// Only the document of heartbeats.
    Heartbeats,
}

/// Asks a server to add to its answer what it knows of its set at that moment.
const SET_STATE: &str = "$replData";

/// Asks a server what it is.
pub(crate) fn hello() -> Document {
    doc! { "hello": 1, SET_STATE: 1 }
}

/// The version of the set's configuration at the time of this answer.
pub(crate) fn config_version(answer: &Document) -> Option<i64> {
    let state = answer.get_document(SET_STATE).ok()?;
    state.get_i64("configVersion").ok()
}

/// The same, if only one member of that configuration can be the primary.
pub(crate) fn sole_primary(hello: &Document) -> Option<i64> {
    let hosts = hello.get_array("hosts").ok()?;
    config_version(hello).filter(|_| hosts.len() == 1)
}

impl Commands {
    fn millis(&self) -> i64 {
        i64::try_from(self.server_timeout.as_millis())
            .unwrap_or(i64::MAX)
            .max(1)
    }

    /// A majority has the write in its journal, or reports in time that it does not.
    fn confirmed(&self) -> Document {
        doc! { "w": "majority", "j": true, "wtimeout": self.millis() }
    }

    fn find(&self, filter: Document, concern: Concern) -> Document {
        let level = match concern {
            Concern::Linearizable => doc! { "level": "linearizable" },
            Concern::Majority(None) | Concern::Sole(_) => doc! { "level": "majority" },
            Concern::Majority(Some(time)) => doc! { "level": "majority", "afterClusterTime": time },
            Concern::Local => doc! { "level": "local" },
        };
        let mut command = doc! { "find": &self.collection, "filter": filter, "limit": 2, "readConcern": level, "maxTimeMS": self.millis() };
        if matches!(concern, Concern::Sole(_)) {
            command.insert(SET_STATE, 1);
        }
        command
    }

    /// Reads both documents in one request, as far as they are needed.
    pub(crate) fn read(&self, want: Want<'_>, concern: Concern) -> Document {
        let both = || doc! { "_id": { "$in": [&self.keys.table, &self.keys.heartbeats] } };
        let one = |id: &str| doc! { "_id": id };
        let filter = match want {
            Want::All { heartbeats: false }
            | Want::Since {
                heartbeats: false, ..
            } => one(&self.keys.table),
            Want::Heartbeats => one(&self.keys.heartbeats),
            _ => both(),
        };
        let mut command = self.find(filter, concern);
        match want {
            Want::All { .. } | Want::Heartbeats => {}
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
    pub(crate) fn foreign_document(&self, concern: Concern) -> Document {
        let mut command = self.find(doc! { MARK: { "$exists": false } }, concern);
        command.extend(doc! { "limit": 1, "projection": { "_id": 1 } });
        command
    }

    /// Closes a cursor that is not read to its end.
    pub(crate) fn close_cursor(&self, cursor: i64) -> Document {
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

    /// The update of a commit: it matches only the expected version, and only if each inserted row
    /// is absent and each other row is present.
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
            "_id": &self.keys.table,
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
            doc! { "version_row.version": whole(request.next_version()) },
            Document::new(),
        );
        let more = request.added_rows();
        for change in &request.changes {
            let field = format!("members.{}", name(change.key()));
            filter.insert(
                field.clone(),
                doc! { "$exists": !matches!(change, RowChange::Insert(_)) },
            );
            match change {
                RowChange::Insert(row) | RowChange::Update(row) => {
                    set.insert(field, row.body());
                }
                RowChange::Remove(_) => {
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
                false => drop(set.insert("version_row.core", core.stored())),
            }
        }
        let recent = doc! { "$each": [plain(&request.record())?], "$slice": -i64::try_from(RECENT_COMMITS).unwrap_or(16) };
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

    /// Keeps the larger of the stored heartbeat and this one. With `created`, a missing document is
    /// created with these fields.
    pub(crate) fn heartbeat(&self, key: &str, value: Bson, created: Option<Document>) -> Document {
        let mut larger = Document::new();
        larger.insert(format!("beats.{}", name(key)), value);
        self.change_heartbeats(doc! { "$max": larger }, created)
    }

    /// Overwrites the cluster's own cell.
    pub(crate) fn cell(&self, text: &str, created: Option<Document>) -> Document {
        self.change_heartbeats(doc! { "$set": { "cell": text } }, created)
    }

    fn change_heartbeats(&self, mut change: Document, created: Option<Document>) -> Document {
        let upsert = created.is_some();
        if let Some(created) = created {
            change.insert("$setOnInsert", created);
        }
        self.update(doc! { "_id": &self.keys.heartbeats }, change, upsert)
    }

    /// Removes the heartbeats of removed rows.
    pub(crate) fn remove_heartbeats_of<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Document {
        let gone: Document = keys
            .map(|key| (format!("beats.{}", name(key)), Bson::String(String::new())))
            .collect();
        self.update(
            doc! { "_id": &self.keys.heartbeats },
            doc! { "$unset": gone },
            false,
        )
    }

    /// Replaces a document of heartbeats that an earlier table left behind.
    pub(crate) fn replace_heartbeats(&self, fresh: Document) -> Document {
        self.update(doc! { "_id": &self.keys.heartbeats }, fresh, false)
    }

    /// Marks the version row of this table if it is unchanged. After that only `delete` works.
    pub(crate) fn mark_deleting(&self, row: &VersionRow) -> Document {
        let filter = doc! {
            "_id": &self.keys.table,
            "version_row.table_id": row.table_id.to_string(),
            "version_row.version": whole(row.version),
        };
        self.update(
            filter,
            doc! { "$set": { "version_row.deleting": true } },
            false,
        )
    }

    /// Removes the cluster, heartbeats first; its document only if the version row is unchanged.
    pub(crate) fn remove(
        &self,
        version_row: Option<&Bson>,
        heartbeats_of: Option<&Bson>,
    ) -> Document {
        let heartbeats =
            doc! { "_id": &self.keys.heartbeats, "table_id": unchanged(heartbeats_of) };
        let table = doc! { "_id": &self.keys.table, "version_row": unchanged(version_row) };
        self.delete([heartbeats, table])
    }

    /// Removes a document of heartbeats that has no cluster.
    pub(crate) fn remove_heartbeats(&self, heartbeats_of: Option<&Bson>) -> Document {
        let table_id = unchanged(heartbeats_of);
        self.delete([doc! { "_id": &self.keys.heartbeats, "table_id": table_id }])
    }

    /// The store's own cheapest write of the same durability. It changes a counter, because MongoDB
    /// does not write a document that stays the same.
    pub(crate) fn baseline_write(&self, content: &str) -> Document {
        let change = doc! { "$set": { "content": content }, "$inc": { "writes": 1_i64 }, "$setOnInsert": crate::codec::marks(None) };
        self.update(doc! { "_id": &self.keys.baseline }, change, true)
    }

    /// The store's own cheapest read.
    pub(crate) fn baseline_read(&self, concern: Concern) -> Document {
        self.find(doc! { "_id": &self.keys.baseline }, concern)
    }

    pub(crate) fn baseline_remove(&self) -> Document {
        self.delete([doc! { "_id": &self.keys.baseline }])
    }
}

/// Matches a field that still has this value, or is still missing.
fn unchanged(value: Option<&Bson>) -> Document {
    value.map_or_else(|| doc! { "$exists": false }, |value| doc! { "$eq": value })
}

/// Whether the document that is read has this version.
fn is_version(token: &VersionToken) -> Document {
    let mut same = vec![
        doc! { "$eq": ["$version_row.table_id", token.table_id().to_string()] },
        doc! { "$eq": ["$version_row.version", whole(token.version())] },
    ];
    if token.version() > 0 {
        // A damaged version row has no last commit; that is not an error here.
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

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::{
        CommitId, InstanceId, MembershipEntry, SharedSettings, SiloAddress, TableId, WallTime,
    };

    fn commands() -> Commands {
        Commands {
            collection: "membership".to_owned(),
            keys: Keys::new(&"billing/blue".parse().unwrap()),
            server_timeout: Duration::from_secs(4),
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
    fn a_commit_names_the_version_it_is_based_on() {
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
        let command = commands().commit(&second, 10).unwrap();
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
        // One insert and one removal: the row limit cannot be exceeded.
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
            let command = commands().read(want, Concern::Linearizable);
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
