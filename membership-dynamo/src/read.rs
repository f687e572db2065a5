//! `read` and `read_row`: few requests, and never a torn answer. Clauses T6, T12, T16.
//!
//! Whoever knows nothing reads the partition, page by page, and the version row along with each further page: no commit is missed. Whoever knows a
//! version reads the version row, with the heartbeats if they are wanted, and then only what its commits have changed. Either is held
//! against the version rows that were read ([`fence`](crate::fence)), and what does not agree is read again with the version row. While somebody
//! commits at full speed, rows that are asked for one by one are behind again and again; a page is read in one go. So where everything fits into
//! one page, and what had changed could not be had at the first attempt, the page is read.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::operation::transact_get_items::TransactGetItemsError;
use aws_sdk_dynamodb::types::{Get, KeysAndAttributes, TransactGetItem};
use futures_util::future::try_join;
use membership_core::{
    ChangedKeys, Operation, ReadAnswer, ReadRequest, RowRead, Rows, SiloAddress, Snapshot,
    TableError, TableErrorKind, VersionToken, check_token,
};

use crate::codec::{self, Gathered};
use crate::error::error;
use crate::fence::{Draft, Verdict, Version};
use crate::link::{Item, Link};
use crate::table::Inner;

/// What DynamoDB reads in one transaction, or in one batch, less the version row.
const AT_ONCE: usize = 99;
/// How many rows are read again where few must be.
const ALONG: usize = 32;
/// How often doubtful rows are read again before everything is.
const TURNS: usize = 16;
/// Tables of no more bytes than this are read in one page, which takes 1 MB; the rest is for the version row.
const ONE_PAGE: usize = 900_000;
/// How often everything is.
const BEGINNINGS: usize = 4;
/// How often items that a batch left out are asked for again.
const LEFT_OUT: u32 = 8;

/// Which part of a partition a query asks for; see the order of names in `codec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Heartbeats, the version row, rows.
    All,
    /// The version row and rows.
    Rows,
    /// Heartbeats and the version row.
    Heartbeats,
}

/// Rows that were read again.
struct Again {
    version: Option<codec::Stored>,
    rows: Vec<(String, Option<String>)>,
    /// Whether all of it, the version row included, was read in one transaction.
    exact: bool,
}

impl Link {
    /// Every item of a part, in as many pages as it takes.
    ///
    /// # Errors
    /// What the store says.
    async fn query(&self, part: Part) -> Result<Gathered, TableError> {
        let (condition, range) = match part {
            Part::All => ("#cluster = :cluster", vec![]),
            Part::Rows => (
                "#cluster = :cluster AND begins_with(#item, :rows)",
                vec![(":rows", codec::ROWS)],
            ),
            Part::Heartbeats => (
                "#cluster = :cluster AND #item BETWEEN :from AND :to",
                vec![(":from", codec::HEARTBEATS), (":to", codec::VERSION_ROW)],
            ),
        };
        let (mut all, mut after) = (Gathered::default(), None);
        loop {
            let request = || {
                let mut query = self
                    .client
                    .query()
                    .table_name(&self.table)
                    .consistent_read(true)
                    .key_condition_expression(condition);
                query = query.expression_attribute_names("#cluster", codec::CLUSTER);
                query = query.expression_attribute_values(":cluster", codec::text(&self.cluster));
                if part != Part::All {
                    query = query.expression_attribute_names("#item", codec::ITEM);
                }
                for (name, value) in &range {
                    query = query.expression_attribute_values(*name, codec::text(*value));
                }
                query.set_exclusive_start_key(after.clone()).send()
            };
            let page = async {
                self.ask(false, request)
                    .await
                    .map_err(|failed| failed.error)
            };
            // It lists sixteen commits, and a page takes its time. At once, because a question more is a round trip in which others commit.
            let later = async {
                if all.version.is_some() {
                    self.version().await.map(Some)
                } else {
                    Ok(None)
                }
            };
            let (page, later) = try_join(page, later).await?;
            all.later.extend(later);
            page.items
                .unwrap_or_default()
                .into_iter()
                .for_each(|item| all.take(item));
            after = page.last_evaluated_key.filter(|key| !key.is_empty());
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// The version row, and nothing else.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn version(&self) -> Result<Option<codec::Stored>, TableError> {
        let key = self.key(codec::VERSION_ROW);
        let request = || {
            self.client
                .get_item()
                .table_name(&self.table)
                .consistent_read(true)
                .set_key(Some(key.clone()))
                .send()
        };
        let answer = self
            .ask(false, request)
            .await
            .map_err(|failed| failed.error)?;
        Ok(answer.item.as_ref().map(codec::Stored::new))
    }

    /// Whether there is a version row after all: rows that came without one may be those of a cluster that was founded between two questions, or
    /// between two items of one answer.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn is_founded_since(&self) -> Result<bool, TableError> {
        Ok(self.version().await?.is_some())
    }

    /// Whether these rows, with the version row, are one page of a query.
    fn is_one_page(&self, rows: &Rows) -> bool {
        let names = codec::CLUSTER.len()
            + self.cluster.len()
            + codec::ITEM.len()
            + codec::ROW.len()
            + codec::BODY.len();
        rows.iter().map(|row| row.size() + names).sum::<usize>() <= ONE_PAGE
    }

    /// The key of any row, where there is one.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn any_row(&self) -> Result<Option<String>, TableError> {
        let request = || {
            let query = self
                .client
                .query()
                .table_name(&self.table)
                .consistent_read(true)
                .limit(1);
            query
                .key_condition_expression("#cluster = :cluster AND begins_with(#item, :row)")
                .expression_attribute_names("#cluster", codec::CLUSTER)
                .expression_attribute_names("#item", codec::ITEM)
                .expression_attribute_values(":cluster", codec::text(&self.cluster))
                .expression_attribute_values(":row", codec::text(codec::ROW))
                .send()
        };
        let page = self
            .ask(false, request)
            .await
            .map_err(|failed| failed.error)?;
        let mut found = Gathered::default();
        page.items
            .unwrap_or_default()
            .into_iter()
            .for_each(|item| found.take(item));
        Ok(found.rows.into_iter().next().map(|(key, _)| key))
    }

    /// These items in one transaction, in their order; none where it was refused, because somebody writes one of them or because they are
    /// too large.
    ///
    /// # Errors
    /// What the store says.
    async fn get_together(
        &self,
        names: &[String],
    ) -> Result<Option<Vec<Option<Item>>>, TableError> {
        let mut items = Vec::with_capacity(names.len());
        for name in names {
            let get = Get::builder()
                .table_name(&self.table)
                .set_key(Some(self.key(name)))
                .build()
                .map_err(malformed)?;
            items.push(TransactGetItem::builder().get(get).build());
        }
        match self
            .ask(false, || {
                self.client
                    .transact_get_items()
                    .set_transact_items(Some(items.clone()))
                    .send()
            })
            .await
        {
            Ok(answer) => Ok(Some(
                answer
                    .responses
                    .unwrap_or_default()
                    .into_iter()
                    .map(|response| response.item)
                    .collect(),
            )),
            Err(failed) => match failed.answer {
                Some(TransactGetItemsError::TransactionCanceledException(_)) => Ok(None),
                _ => Err(failed.error),
            },
        }
    }

    /// These items, each by itself.
    ///
    /// # Errors
    /// What the store says.
    async fn get_each(&self, names: &[String]) -> Result<Gathered, TableError> {
        let mut all = Gathered::default();
        for names in names.chunks(AT_ONCE + 1) {
            let mut left: Vec<Item> = names.iter().map(|name| self.key(name)).collect();
            for turn in 0.. {
                let keys = KeysAndAttributes::builder()
                    .consistent_read(true)
                    .set_keys(Some(left.clone()))
                    .build()
                    .map_err(malformed)?;
                let request = || {
                    self.client
                        .batch_get_item()
                        .request_items(&self.table, keys.clone())
                        .send()
                };
                let answer = self
                    .ask(false, request)
                    .await
                    .map_err(|failed| failed.error)?;
                let items = answer.responses.unwrap_or_default().into_values().flatten();
                items.for_each(|item| all.take(item));
                left = answer
                    .unprocessed_keys
                    .unwrap_or_default()
                    .into_values()
                    .flat_map(|keys| keys.keys)
                    .collect();
                if left.is_empty() {
                    break;
                }
                if turn == LEFT_OUT {
                    return Err(error(
                        TableErrorKind::Busy,
                        format!("{} gives less than is asked for, again and again", self.at),
                    ));
                }
                tokio::time::sleep(Duration::from_millis(1 << turn)).await;
            }
        }
        Ok(all)
    }

    /// These rows and the version row. `together`: in one transaction, if that is possible now.
    async fn get_rows(&self, keys: BTreeSet<String>, together: bool) -> Result<Again, TableError> {
        let names: Vec<String> = [codec::VERSION_ROW.to_owned()]
            .into_iter()
            .chain(keys.iter().map(|key| row_name(key)))
            .collect();
        let (found, exact) = match if together && names.len() <= AT_ONCE + 1 {
            self.get_together(&names).await?
        } else {
            None
        } {
            Some(items) => {
                let mut all = Gathered::default();
                items.into_iter().flatten().for_each(|item| all.take(item));
                (all, true)
            }
            None => (self.get_each(&names).await?, false),
        };
        let mut bodies: HashMap<String, String> = found.rows.into_iter().collect();
        let rows = keys.into_iter().map(|key| {
            let body = bodies.remove(&key);
            (key, body)
        });
        Ok(Again {
            version: found.version,
            rows: rows.collect(),
            exact,
        })
    }
}

/// What a draft came to.
enum Settled {
    Whole(Snapshot),
    /// It cannot be repaired, only read anew; and how many rows were not there, if that is why.
    Anew(Option<u64>),
}

impl Inner {
    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        match &request.known {
            Some(known) => self.read_since(known, request.heartbeats).await,
            None => {
                let (snapshot, found) = self.read_anew(None, request.heartbeats).await?;
                let heartbeats = request
                    .heartbeats
                    .then(|| found.heartbeats(Some(&snapshot.rows)));
                Ok(ReadAnswer::Snapshot {
                    snapshot,
                    heartbeats,
                })
            }
        }
    }

    async fn read_since(
        &self,
        known: &VersionToken,
        heartbeats: bool,
    ) -> Result<ReadAnswer, TableError> {
        let found = if heartbeats {
            self.link.query(Part::Heartbeats).await?
        } else {
            Gathered::of(self.link.version().await?)
        };
        let version = codec::usable(found.version.as_ref(), None, Some(known), Operation::Read)?;
        let token = version.row.token(&[]);
        let base = self.base();
        if token.same_commit(known) {
            let rows = base
                .filter(|base| base.token.same_commit(known))
                .map(|base| base.rows);
            return Ok(ReadAnswer::Unchanged {
                heartbeats: heartbeats.then(|| found.heartbeats(rows.as_ref())),
            });
        }
        let snapshot = match base.filter(|base| check_token(&base.token, &version.row).is_ok()) {
            Some(base) => {
                let draft = Draft::new(base.rows.clone(), base.version());
                let turns = if self.link.is_one_page(&base.rows) {
                    1
                } else {
                    TURNS
                };
                match self
                    .settle(draft, vec![version], Some(known), turns)
                    .await?
                {
                    Settled::Whole(snapshot) => Some(snapshot),
                    Settled::Anew(_) => None,
                }
            }
            None => None,
        };
        let snapshot = match snapshot {
            Some(snapshot) => {
                self.remember_changed(&snapshot);
                snapshot
            }
            None => self.read_anew(Some(known), false).await?.0,
        };
        let heartbeats = heartbeats.then(|| found.heartbeats(Some(&snapshot.rows)));
        Ok(ReadAnswer::Snapshot {
            snapshot,
            heartbeats,
        })
    }

    /// Everything, from the beginning.
    async fn read_anew(
        &self,
        known: Option<&VersionToken>,
        heartbeats: bool,
    ) -> Result<(Snapshot, Gathered), TableError> {
        let mut missed = 0;
        for _ in 0..BEGINNINGS {
            let mut found = self
                .link
                .query(if heartbeats { Part::All } else { Part::Rows })
                .await?;
            let stray = found.rows.first().map(|(key, _)| key.as_str());
            if found.version.is_none() && stray.is_some() && self.link.is_founded_since().await? {
                continue;
            }
            let version = codec::usable(found.version.as_ref(), stray, known, Operation::Read)?;
            let rows = codec::rows(std::mem::take(&mut found.rows), &self.known_rows());
            let draft = Draft::new(rows, version.row.version);
            let mut versions = vec![version];
            for later in std::mem::take(&mut found.later).into_iter().flatten() {
                versions.push(codec::usable(Some(&later), None, known, Operation::Read)?);
            }
            match self.settle(draft, versions, known, TURNS).await? {
                Settled::Whole(snapshot) => {
                    self.remember_all(&snapshot);
                    return Ok((snapshot, found));
                }
                Settled::Anew(None) => {}
                Settled::Anew(Some(missing)) if missed > 0 => {
                    let message = format!(
                        "{missing} rows are gone: were they removed by hand? restore a backup, or `membership delete` the cluster and \
                         restart all silos"
                    );
                    return Err(error(TableErrorKind::Damaged, message));
                }
                Settled::Anew(Some(missing)) => missed = missing,
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "the table changes faster than it can be read",
        ))
    }

    /// Reads again what does not agree, so many times at most, until everything does: with the newest of these versions, or with an earlier
    /// one, all of which were read since this read began.
    async fn settle(
        &self,
        mut draft: Draft,
        mut versions: Vec<Version>,
        known: Option<&VersionToken>,
        turns: usize,
    ) -> Result<Settled, TableError> {
        for version in &versions {
            draft.hear(version);
        }
        // Whether a version row was read after all of these rows were.
        let mut heard = false;
        let mut turn = 0;
        loop {
            let apart =
                |pair: &[Version]| check_token(&pair[0].row.token(&[]), &pair[1].row).is_err();
            if versions.windows(2).any(apart) {
                return Ok(Settled::Anew(None));
            }
            let (mut newest, mut unsure) = (None, false);
            for version in versions.iter().rev() {
                match draft.verdict(&version.row) {
                    Verdict::Unsure { missing } if heard && missing > 0 => {
                        return Ok(Settled::Anew(Some(missing)));
                    }
                    Verdict::Unsure { .. } if !heard => unsure = true,
                    Verdict::Whole | Verdict::Unsure { .. } => {
                        let (token, version_row) = (version.row.token(&[]), version.row.clone());
                        return Ok(Settled::Whole(Snapshot {
                            token,
                            version_row,
                            rows: draft.rows().clone(),
                        }));
                    }
                    verdict => {
                        newest.get_or_insert(verdict);
                    }
                }
            }
            if unsure {
                let Some(stored) = self.link.version().await? else {
                    return Ok(Settled::Anew(None));
                };
                let version = codec::usable(Some(&stored), None, known, Operation::Read)?;
                draft.hear(&version);
                versions.push(version);
                heard = true;
                continue;
            }
            let Some(Verdict::Doubtful(mut keys)) = newest.filter(|_| turn < turns) else {
                return Ok(Settled::Anew(None));
            };
            keys.extend(
                versions
                    .last()
                    .map(|version| likely(version, keys.len()))
                    .unwrap_or_default(),
            );
            // Together is atomic, and refused while somebody commits; it is needed for rows that do not say who wrote them.
            let again = self.link.get_rows(keys, turn > 1 && turn % 2 == 0).await?;
            turn += 1;
            // Gone meanwhile: what there is now, the next beginning says.
            let Some(stored) = again.version else {
                return Ok(Settled::Anew(None));
            };
            let version = codec::usable(Some(&stored), None, known, Operation::Read)?;
            let exact = again.exact.then_some(version.row.version);
            for (key, body) in again.rows {
                let row = body.map(|body| codec::row(key.clone(), body, draft.rows()));
                draft.put(&key, row, exact);
            }
            draft.hear(&version);
            versions.push(version);
            heard = false;
        }
    }

    /// # Errors
    /// As [`MembershipTable::read_row`](membership_core::MembershipTable::read_row).
    pub(crate) async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let during = Operation::ReadRow;
        let key = silo.row_key();
        let names = [
            codec::VERSION_ROW.to_owned(),
            row_name(&key),
            heartbeat_name(&key),
        ];
        for turn in 0..TURNS {
            let together = if turn % 2 == 0 {
                self.link.get_together(&names).await?
            } else {
                None
            };
            let (mut found, exact) = match together {
                Some(items) => {
                    let mut all = Gathered::default();
                    items.into_iter().flatten().for_each(|item| all.take(item));
                    (all, true)
                }
                None => (self.link.get_each(&names).await?, false),
            };
            let body = found.rows.pop().map(|(_, body)| body);
            let stray = match (&found.version, &body) {
                (Some(_), _) => None,
                (None, Some(_)) => Some(key.clone()),
                (None, None) => self.link.any_row().await?,
            };
            if stray.is_some() && self.link.is_founded_since().await? {
                continue;
            }
            let version = codec::usable(found.version.as_ref(), stray.as_deref(), known, during)?;
            let row = body.map(|body| codec::row(key.clone(), body, &self.known_rows()));
            if exact || version.explains(&key, row.as_ref()) {
                let heartbeat = row.as_ref().and_then(|_| found.heartbeat_of(&key));
                return Ok(RowRead {
                    token: version.row.token(&[]),
                    row,
                    heartbeat,
                });
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "the row changes faster than it can be read",
        ))
    }

    fn known_rows(&self) -> Rows {
        self.seen().map(|seen| seen.rows).unwrap_or_default()
    }
}

/// Rows that were changed last are likely to be changed again before the answer comes; some of them are read along.
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

pub(crate) fn row_name(key: &str) -> String {
    format!("{}{key}", codec::ROW)
}

pub(crate) fn heartbeat_name(key: &str) -> String {
    format!("{}{key}", codec::HEARTBEAT)
}

/// A request that lacks a part that it must have; cannot happen.
pub(crate) fn malformed(e: impl std::fmt::Display) -> TableError {
    error(
        TableErrorKind::InvalidRequest,
        format!("the request cannot be made ({e})"),
    )
}
