//! `read` and `read_row`: few requests, and never a torn answer. Clauses T6, T12, T16.
//!
//! A read without a known version reads the partition page by page, and with each further page the
//! version row, so that it sees every commit. A read with a known version reads the version row
//! (with the heartbeats if they are wanted) and then only the rows that later commits changed. Both
//! check the rows against the version rows that were read ([`fence`](crate::fence)), and read again
//! whatever does not agree.
//!
//! While others commit at full speed, rows that are read one by one are stale again and again, but
//! a page is read in one go. So if everything fits into one page, and the first attempt to read
//! what has changed fails, the page is read instead.

use membership_core::{
    ChangedKeys, Operation, ReadAnswer, ReadRequest, RowRead, Rows, SiloAddress, Snapshot,
    TableError, TableErrorKind, VersionToken, check_token,
};
use membership_provider::{FullRead, decode_row, merge_rows};

use crate::client::Inner;
use crate::codec::{self, Items};
use crate::error::error;
use crate::fence::{Draft, Verdict, Version};
use crate::keys;
use crate::query::Part;

/// How many rows are read again where few must be.
const ALONG: usize = 32;
/// How often doubtful rows are read again before everything is.
const REPAIRS: usize = 16;
/// Tables of no more bytes than this are read in one page, which takes 1 MB; the rest is for the
/// version row.
const ONE_PAGE: usize = 900_000;
/// How often a full read starts over.
const RESTARTS: usize = 4;

/// The result of repairing a draft.
enum Settled {
    Whole(Snapshot),
    /// It cannot be repaired, only read again from the start; and how many rows were missing, if
    /// that is the reason.
    StartOver(Option<u64>),
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let operation = self.begin();
        if request.new_connection {
            operation.client.reconnect();
        }
        match &request.known {
            Some(known) => operation.read_since(known, request.heartbeats).await,
            None => {
                let (snapshot, found) = operation.read_all(None, request.heartbeats).await?;
                let rows = Some(&snapshot.rows);
                let heartbeats = request.heartbeats.then(|| found.heartbeats.shown(rows));
                Ok(ReadAnswer::new(None, snapshot, heartbeats))
            }
        }
    }

    async fn read_since(
        &self,
        known: &VersionToken,
        heartbeats: bool,
    ) -> Result<ReadAnswer, TableError> {
        let found = if heartbeats {
            self.client.query(Part::Heartbeats).await?
        } else {
            Items::of(self.client.version().await?)
        };
        let version = codec::usable(found.version.as_ref(), None, Some(known), Operation::Read)?;
        let token = version.row.token(&[]);
        let cached = self.cache.latest().filter(|cached| !cached.is_due());
        if token.same_commit(known) {
            let cached = cached.filter(|cached| cached.read.token.same_commit(known));
            let rows = cached.map(|cached| cached.read.rows);
            return Ok(ReadAnswer::Unchanged {
                heartbeats: heartbeats.then(|| found.heartbeats.shown(rows.as_ref())),
            });
        }
        let base = cached.filter(|cached| check_token(&cached.read.token, &version.row).is_ok());
        let mut snapshot = None;
        if let Some(base) = base {
            let draft = Draft::new(base.read.rows.clone(), base.read.version());
            let repairs = match self.is_one_page(&base.read.rows) {
                true => 1,
                false => REPAIRS,
            };
            let settled = self.settle(draft, vec![version], Some(known), repairs);
            if let Settled::Whole(settled) = settled.await? {
                self.cache.store(base.changed(settled.clone()));
                snapshot = Some(settled);
            }
        }
        let snapshot = match snapshot {
            Some(snapshot) => snapshot,
            None => self.read_all(Some(known), false).await?.0,
        };
        let heartbeats = heartbeats.then(|| found.heartbeats.shown(Some(&snapshot.rows)));
        Ok(ReadAnswer::new(Some(known), snapshot, heartbeats))
    }

    /// A full read.
    async fn read_all(
        &self,
        known: Option<&VersionToken>,
        heartbeats: bool,
    ) -> Result<(Snapshot, Items), TableError> {
        let mut missed = 0;
        for _ in 0..RESTARTS {
            let part = if heartbeats { Part::All } else { Part::Rows };
            let mut found = self.client.query(part).await?;
            let stray = found.rows.first().map(|(key, _)| key.as_str());
            if found.version.is_none() && stray.is_some() && self.client.is_created_since().await? {
                continue;
            }
            let version = codec::usable(found.version.as_ref(), stray, known, Operation::Read)?;
            let rows = merge_rows(&found.rows, &self.cache.rows());
            let draft = Draft::new(rows, version.row.version);
            let mut versions = vec![version];
            for later in std::mem::take(&mut found.later).into_iter().flatten() {
                versions.push(codec::usable(Some(&later), None, known, Operation::Read)?);
            }
            match self.settle(draft, versions, known, REPAIRS).await? {
                Settled::Whole(snapshot) => {
                    self.cache.store(FullRead::new(snapshot.clone()));
                    return Ok((snapshot, found));
                }
                Settled::StartOver(None) => {}
                Settled::StartOver(Some(missing)) if missed > 0 => {
                    let why = format!(
                        "{missing} rows are gone: were they removed by hand? restore a backup, or `membership delete` the cluster and restart all silos"
                    );
                    return Err(error(TableErrorKind::Damaged, why));
                }
                Settled::StartOver(Some(missing)) => missed = missing,
            }
        }
        let why = "the table changes faster than it can be read";
        Err(error(TableErrorKind::Busy, why))
    }

    /// Reads again what does not agree, at most `repairs` times, until all rows are as of one of
    /// these versions, or of a newer one. All versions were read since this read began.
    async fn settle(
        &self,
        mut draft: Draft,
        mut versions: Vec<Version>,
        known: Option<&VersionToken>,
        repairs: usize,
    ) -> Result<Settled, TableError> {
        for version in &versions {
            draft.take_log(version);
        }
        // Whether a version row was read after all of these rows.
        let mut is_latest = false;
        let mut turn = 0;
        loop {
            let apart =
                |pair: &[Version]| check_token(&pair[0].row.token(&[]), &pair[1].row).is_err();
            if versions.windows(2).any(apart) {
                return Ok(Settled::StartOver(None));
            }
            let (mut newest, mut unsure) = (None, false);
            for version in versions.iter().rev() {
                match draft.verdict(&version.row) {
                    Verdict::Unsure { missing } if is_latest && missing > 0 => {
                        return Ok(Settled::StartOver(Some(missing)));
                    }
                    Verdict::Unsure { .. } if !is_latest => unsure = true,
                    Verdict::Whole | Verdict::Unsure { .. } => {
                        return Ok(Settled::Whole(Snapshot::new(
                            version.row.token(&[]),
                            version.row.clone(),
                            draft.rows().clone(),
                        )));
                    }
                    verdict => {
                        newest.get_or_insert(verdict);
                    }
                }
            }
            if unsure {
                let Some(stored) = self.client.version().await? else {
                    return Ok(Settled::StartOver(None));
                };
                let version = codec::usable(Some(&stored), None, known, Operation::Read)?;
                draft.take_log(&version);
                versions.push(version);
                is_latest = true;
                continue;
            }
            let Some(Verdict::Doubtful(mut doubtful)) = newest.filter(|_| turn < repairs) else {
                return Ok(Settled::StartOver(None));
            };
            if let Some(version) = versions.last() {
                doubtful.extend(likely(version, doubtful.len()));
            }
            // One transaction is atomic, but refused while another client commits. It is needed for
            // rows that do not say at which version they were written.
            let together = turn > 1 && turn % 2 == 0;
            let again = self.client.get_rows(doubtful, together).await?;
            turn += 1;
            // The cluster was deleted meanwhile: the next full read says what there is now.
            let Some(stored) = again.version else {
                return Ok(Settled::StartOver(None));
            };
            let version = codec::usable(Some(&stored), None, known, Operation::Read)?;
            let exact = again.exact.then_some(version.row.version);
            for (key, body) in again.rows {
                let row = body.map(|body| decode_row(&key, &body, draft.rows()));
                draft.put(&key, row, exact);
            }
            draft.take_log(&version);
            versions.push(version);
            is_latest = false;
        }
    }

    /// # Errors
    /// As [`MembershipTable::read_row`](membership_core::MembershipTable::read_row).
    pub(crate) async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let operation = self.begin();
        let key = silo.row_key();
        let version_row = keys::VERSION_ROW.to_owned();
        let names = [version_row, keys::row(&key), keys::heartbeat(&key)];
        for turn in 0..REPAIRS {
            let together = if turn % 2 == 0 {
                operation.client.get_together(&names).await?
            } else {
                None
            };
            let exact = together.is_some();
            let mut found = match together {
                Some(found) => found,
                None => operation.client.get_each(&names).await?,
            };
            let body = found.rows.pop().map(|(_, body)| body);
            let stray = match (&found.version, &body) {
                (Some(_), _) => None,
                (None, Some(_)) => Some(key.clone()),
                (None, None) => operation.client.any_row().await?,
            };
            if stray.is_some() && operation.client.is_created_since().await? {
                continue;
            }
            let (version, stray) = (found.version.as_ref(), stray.as_deref());
            let version = codec::usable(version, stray, known, Operation::ReadRow)?;
            let row = body.map(|body| operation.cache.row(&key, &body));
            if exact || version.explains(&key, row.as_ref()) {
                let heartbeat = row.as_ref().and_then(|_| found.heartbeats.get(&key));
                let answer = RowRead::new(version.row.token(&[]), row, heartbeat);
                return Ok(answer.with_version_row(version.row));
            }
        }
        let why = "the row changes faster than it can be read";
        Err(error(TableErrorKind::Busy, why))
    }

    /// Whether these rows, with the version row, are one page of a query.
    fn is_one_page(&self, rows: &Rows) -> bool {
        let names = [keys::CLUSTER, keys::ITEM, keys::ROW, keys::BODY].map(str::len);
        let names = names.iter().sum::<usize>() + self.client.cluster.len();
        rows.iter().map(|row| row.size() + names).sum::<usize>() <= ONE_PAGE
    }
}

/// Rows that changed last are likely to change again before the answer comes: some of them are read
/// along.
fn likely(version: &Version, doubtful: usize) -> Vec<String> {
    let mut keys = Vec::new();
    for record in version.row.recent.iter().rev() {
        let ChangedKeys::Keys(changed) = &record.changed else {
            break;
        };
        if doubtful + keys.len() + changed.len() > ALONG {
            break;
        }
        keys.extend(changed.iter().cloned());
    }
    keys
}
