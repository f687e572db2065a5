//! How pages of different moments become one snapshot.

use super::*;
use crate::batch::Properties;
use crate::codec;
use membership_core::{
    CommitRequest, InstanceId, MembershipEntry, SharedSettings, SiloAddress, Snapshot, TableId,
    WallTime,
};

fn entry(n: u16) -> MembershipEntry {
    MembershipEntry::new(
        SiloAddress::new([10, 0, 0, 1].into(), n, 17),
        InstanceId::new(n.into()),
        WallTime::from_millis(5),
    )
}

fn key(n: u16) -> String {
    entry(n).address.row_key()
}

/// A table of this test's own: what each version was, and the entities that a query would give.
struct Model {
    versions: Vec<Snapshot>,
    stored: Properties,
}

impl Model {
    fn new() -> Self {
        let row = VersionRow::initial(TableId::new(7), SharedSettings::default());
        let stored = codec::initial(&row);
        Self {
            versions: vec![Snapshot::new(row.token(&[]), row, Rows::new())],
            stored,
        }
    }

    fn now(&self) -> &Snapshot {
        self.versions.last().unwrap()
    }

    fn commit(&mut self, inserts: &[u16], updates: &[u16], removes: &[u16]) {
        let now = self.now().clone();
        let id = CommitId::new(1 + u128::from(now.version()));
        let (inserts, updates) = (
            inserts.iter().map(|n| entry(*n)),
            updates.iter().map(|n| entry(*n)),
        );
        let request = CommitRequest::new(
            now.token.clone(),
            id,
            None,
            inserts,
            updates,
            removes.iter().map(|n| key(*n)),
        );
        let base = Base {
            etag: "W/\"1\"".to_owned(),
            row_count: now.version_row.row_count,
            layout: now.version_row.layout,
        };
        self.stored
            .extend(codec::commit_properties(&request, &base));
        self.versions
            .push(request.apply_to(&now, request.next_token(&[])));
    }

    fn version(&self) -> Entity {
        Entity {
            row_key: keys::VERSION.to_owned(),
            etag: Some("W/\"1\"".to_owned()),
            properties: self.stored.clone(),
        }
    }

    fn rows(&self, wanted: impl Fn(&Row) -> bool) -> Vec<Entity> {
        let rows = self.now().rows.iter().filter(|row| wanted(row));
        let mut entities: Vec<Entity> = rows
            .map(|row| Entity {
                row_key: keys::row_key(row.key()),
                etag: None,
                properties: codec::row_properties(row),
            })
            .collect();
        entities.sort_by(|a, b| a.row_key.cmp(&b.row_key));
        entities.insert(0, self.version());
        entities
    }

    /// What a query for everything after a version gives.
    fn since(&self, version: u64) -> Vec<Entity> {
        self.rows(|row| is_after(row, version))
    }

    fn draft(&self) -> Draft {
        Draft::new(&self.version(), None).unwrap()
    }
}

#[test]
fn commits_since_are_applied_and_removed_rows_go() {
    let mut model = Model::new();
    model.commit(&[1, 2, 3, 4], &[], &[]);
    let mut draft = model.draft();
    draft.take(&model.rows(|_| true), &Rows::new());
    assert_eq!(draft.rows, model.now().rows);
    for (inserts, updates, removes) in [
        (&[5][..], &[1][..], &[2][..]),
        (&[2], &[], &[5]),
        (&[], &[3, 4], &[]),
        (&[], &[], &[1, 2, 3, 4]),
    ] {
        model.commit(inserts, updates, removes);
        model.commit(&[9], &[], &[]);
        model.commit(&[], &[], &[9]);
        let since = draft.version.version;
        draft.advance(model.draft(), &model.since(since), &Rows::new());
        assert!(!draft.unsure && !draft.torn);
        assert_eq!(
            draft.rows,
            model.now().rows,
            "version {}",
            draft.version.version
        );
        assert_eq!(draft.surplus(), 0);
    }
}

#[test]
fn half_a_commit_is_torn() {
    let mut model = Model::new();
    model.commit(&[1, 2], &[], &[]);
    let mut draft = model.draft();
    draft.take(&model.rows(|_| true), &Rows::new());
    let before = draft.rows.clone();
    let old_version = model.version();
    model.commit(&[], &[1, 2], &[]);
    // One row of the next commit shows, and the version row does not yet.
    let mut half = model.since(draft.version.version);
    half[0] = old_version.clone();
    half.truncate(2);
    draft.advance(Draft::new(&old_version, None).unwrap(), &half, &Rows::new());
    assert!(draft.torn);
    assert_eq!((draft.version.version, &draft.rows), (1, &before));
    draft.advance(model.draft(), &model.since(1), &Rows::new());
    assert!(!draft.torn);
    assert_eq!(draft.rows, model.now().rows);
}

#[test]
fn more_commits_than_are_recorded_make_the_draft_unsure() {
    let mut model = Model::new();
    model.commit(&[1, 2], &[], &[]);
    let mut draft = model.draft();
    draft.take(&model.rows(|_| true), &Rows::new());
    model.commit(&[], &[], &[1]);
    for _ in 0..16 {
        model.commit(&[], &[2], &[]);
    }
    draft.advance(model.draft(), &model.since(1), &Rows::new());
    assert!(
        draft.unsure && draft.surplus() == 1,
        "row 1 was removed, and nothing says so"
    );
    assert!(!leads_to(
        &model.versions[2].version_row,
        &model.now().version_row
    ));
    assert!(leads_to(
        &model.versions[3].version_row,
        &model.now().version_row
    ));
}

#[test]
fn another_history_does_not_lead_to_this_one() {
    let (mut a, mut b) = (Model::new(), Model::new());
    a.commit(&[1], &[], &[]);
    b.commit(&[1], &[], &[]);
    b.commit(&[2], &[], &[]);
    assert!(
        leads_to(&a.now().version_row, &b.now().version_row),
        "the same commits have the same ids"
    );
    let mut fork = (*a.now().version_row).clone();
    fork.recent[0].id = CommitId::new(99);
    assert!(!leads_to(&fork, &b.now().version_row) && !leads_to(&fork, &a.now().version_row));
    assert!(leads_to(&a.versions[0].version_row, &a.now().version_row));
    assert!(
        !leads_to(&b.now().version_row, &a.now().version_row),
        "back"
    );
}
