//! Reads: one statement that sees one moment, and nothing decoded twice.

use std::sync::{Arc, Mutex, PoisonError};

use membership_core::{
    Discontinuity, Heartbeat, Heartbeats, ReadAnswer, ReadRequest, Row, RowRead, Rows, SiloAddress,
    Snapshot, TableError, TableErrorKind, VersionRow, VersionToken, WallTime, check_token,
    encoding::{VersionRowError, decode_version_row},
};

use super::error::{NO_SUCH_TABLE, code, error, from_mysql};
use super::session::{Session, Set, Trouble, is_read_only, number, text};
use super::sql;
use super::table::Place;

/// What was read last. Texts are always compared, so that a row changed by hand is noticed; only decoding is spared.
#[derive(Default)]
pub(super) struct Cache(Mutex<Known>);

#[derive(Default)]
struct Known {
    version: Option<(String, Arc<VersionRow>)>,
    rows: Rows,
}

impl Cache {
    fn with<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn rows(&self) -> Rows {
        self.with(|known| known.rows.clone())
    }

    /// # Errors
    /// What [`VersionRowError`] says.
    fn decode(&self, body: &str) -> Result<Arc<VersionRow>, TableError> {
        if let Some(row) = self.with(|k| {
            k.version
                .as_ref()
                .filter(|(text, _)| text == body)
                .map(|(_, row)| Arc::clone(row))
        }) {
            return Ok(row);
        }
        let row = Arc::new(decode_version_row(body).map_err(|e| {
            let kind = match e {
                VersionRowError::Foreign(_) => TableErrorKind::ForeignTable,
                VersionRowError::NewerLayout { .. } => TableErrorKind::NewerLayout,
                _ => TableErrorKind::Damaged,
            };
            error(kind, e.to_string())
        })?);
        self.with(|k| k.version = Some((body.to_owned(), Arc::clone(&row))));
        Ok(row)
    }
}

/// A stored version row.
pub(super) struct StoredVersion {
    pub(super) row: Arc<VersionRow>,
    pub(super) deleting: bool,
}

/// What one of the statements of [`sql`] found, undecoded but for the version row.
#[derive(Default)]
pub(super) struct Found {
    /// None where there is no version row.
    pub(super) version: Option<Result<StoredVersion, TableError>>,
    rows: Vec<(String, String)>,
    heartbeats: Heartbeats,
    read_only: bool,
}

impl Found {
    pub(super) fn take(set: &Set, cache: &Cache) -> Self {
        let mut found = Self::default();
        for row in &set.rows {
            match number(row, 0) {
                Some(0) => {
                    let body = text(row, 2).unwrap_or_default();
                    let marked = number(row, 3).unwrap_or(0) != 0;
                    found.read_only = text(row, 5).is_some_and(|value| is_read_only(&value));
                    let decoded = cache.decode(&body);
                    found.version = Some(decoded.map(|row| StoredVersion {
                        deleting: marked || row.deleting,
                        row,
                    }));
                }
                Some(1) => found.rows.push((
                    text(row, 1).unwrap_or_default(),
                    text(row, 2).unwrap_or_default(),
                )),
                Some(2) => {
                    if let Some(silo) = text(row, 1).and_then(|key| key.parse().ok()) {
                        // Only the counter decides anything; a time that somebody made unreadable is shown as 1970.
                        let at = text(row, 4)
                            .and_then(|at| at.parse().ok())
                            .unwrap_or(WallTime::from_millis(0));
                        found.heartbeats.silos.insert(
                            silo,
                            Heartbeat {
                                counter: number(row, 3).unwrap_or(0),
                                at,
                            },
                        );
                    }
                }
                _ => found.heartbeats.cluster = text(row, 2),
            }
        }
        found
    }

    /// Some row, to be named in an error.
    pub(super) fn some_row(&self) -> Option<&str> {
        self.rows.first().map(|(key, _)| key.as_str())
    }

    /// The version row, if there is one and it can be read.
    ///
    /// # Errors
    /// What [`VersionRowError`] says; `Unavailable` from a server that has become read-only.
    pub(super) fn stored(&mut self) -> Result<Option<StoredVersion>, TableError> {
        if self.read_only {
            // What a former primary says may be behind the present one.
            return Err(no_primary());
        }
        self.version.take().transpose()
    }

    /// The version row of a table that may be used, and that `known` can be of: clauses T12 and T16.
    ///
    /// # Errors
    /// Every way of not being usable. `NotInitialized` is also said where there may be rows that were not looked for.
    pub(super) fn current(
        &mut self,
        known: Option<&VersionToken>,
    ) -> Result<StoredVersion, TableError> {
        let Some(version) = self.stored()? else {
            return Err(match (known, self.some_row()) {
                (None, Some(key)) => rows_without_version(key),
                _ => absent(known),
            });
        };
        let continuity = known.map_or(Ok(()), |known| check_token(known, &version.row));
        if continuity == Err(Discontinuity::Replaced) {
            return Err(error(
                TableErrorKind::TableReplaced,
                "the table has another id than the one that was known",
            ));
        }
        if version.deleting {
            return Err(being_deleted());
        }
        if continuity.is_err() {
            let message = format!(
                "version {} is not what the known version became",
                version.row.version
            );
            return Err(error(TableErrorKind::TableRolledBack, message));
        }
        Ok(version)
    }

    /// The rows as one set; those with the text of last time are the same objects again.
    fn into_rows(self, cache: &Cache) -> Rows {
        let before = cache.rows();
        let mut rows = before.clone();
        let (mut kept, mut new) = (0, Vec::new());
        for (key, body) in &self.rows {
            match before.by_key(key) {
                Some(row) if row.body() == body => kept += 1,
                Some(_) => {
                    kept += 1;
                    new.push(Row::decode(key.as_str(), body.as_str()));
                }
                None => new.push(Row::decode(key.as_str(), body.as_str())),
            }
        }
        if kept != before.len() {
            // Some are gone, as after a cleanup.
            rows = self
                .rows
                .iter()
                .filter_map(|(key, body)| {
                    before.by_key(key).filter(|row| row.body() == body).cloned()
                })
                .collect();
        }
        for row in new {
            rows.insert(row);
        }
        cache.with(|known| known.rows = rows.clone());
        rows
    }

    /// The table as it was found; the version row is that of [`current`](Self::current).
    pub(super) fn into_snapshot(self, version: &StoredVersion, cache: &Cache) -> Snapshot {
        Snapshot {
            token: version.row.token(&[]),
            version_row: Arc::clone(&version.row),
            rows: self.into_rows(cache),
        }
    }
}

/// Asks, and takes the answer apart. Tables that are not there are no version row. `settle` makes what is seen lasting, where the server
/// needs that.
pub(super) async fn ask(
    session: &mut Session,
    place: &Place,
    statement: &str,
    settle: Option<String>,
) -> Result<Found, TableError> {
    if !session.look_at_schema().await? {
        return Ok(Found::default());
    }
    let settle = settle
        .filter(|_| session.facts.early)
        .map_or_else(String::new, |settle| format!("; {settle}"));
    match session.begin(&format!("{statement}{settle}")).await {
        Ok(sets) => Ok(sets
            .first()
            .map(|set| Found::take(set, &place.cache))
            .unwrap_or_default()),
        Err(trouble) if trouble.at > 0 && matches!(code(&trouble.error), Some(1142 | 1143)) => {
            // Somebody who may only look: what they see may be taken back by a crash in the same moment.
            session.facts.early = false;
            let sets = session
                .begin(statement)
                .await
                .map_err(|t| from_mysql(t.error))?;
            Ok(sets
                .first()
                .map(|set| Found::take(set, &place.cache))
                .unwrap_or_default())
        }
        Err(trouble) => missing(session, trouble).await.map(|()| Found::default()),
    }
}

/// The error of a server that takes no writes any more.
pub(super) fn no_primary() -> TableError {
    error(
        TableErrorKind::Unavailable,
        "the server has become read-only: there may be another primary",
    )
}

/// # Errors
/// What the server said, unless it is that there are no tables; `Damaged` where only some of them are missing.
pub(super) async fn missing(session: &mut Session, trouble: Trouble) -> Result<(), TableError> {
    if code(&trouble.error) != Some(NO_SUCH_TABLE) {
        return Err(from_mysql(trouble.error));
    }
    match session.look_at_schema_again().await? {
        false => Ok(()),
        true => Err(error(
            TableErrorKind::Unavailable,
            "the tables were dropped, and are there again",
        )),
    }
}

/// `read`
pub(super) async fn read(
    session: &mut Session,
    place: &Place,
    request: &ReadRequest,
) -> Result<ReadAnswer, TableError> {
    let mut known = request.known.as_ref();
    loop {
        // Heartbeats are always news.
        let settle = sql::settle(&place.key, known.filter(|_| !request.heartbeats));
        let mut found = ask(
            session,
            place,
            &sql::read(&place.key, known, request.heartbeats),
            Some(settle),
        )
        .await?;
        let version = found.current(request.known.as_ref())?;
        let token = version.row.token(&[]);
        let heartbeats = request
            .heartbeats
            .then(|| std::mem::take(&mut found.heartbeats));
        if request
            .known
            .as_ref()
            .is_some_and(|k| k.same_commit(&token))
        {
            return Ok(ReadAnswer::Unchanged { heartbeats });
        }
        if let Some(k) = known
            && found.rows.is_empty()
            && version.row.row_count > 0
        {
            // The version row was changed by hand, and what stands beside it was not: the server took it for unchanged and sent no rows.
            tracing::warn!(
                version = k.version(),
                "the version row does not agree with the columns beside it"
            );
            known = None;
            continue;
        }
        return Ok(ReadAnswer::Snapshot {
            snapshot: found.into_snapshot(&version, &place.cache),
            heartbeats,
        });
    }
}

/// `read_row`
pub(super) async fn read_row(
    session: &mut Session,
    place: &Place,
    silo: &SiloAddress,
    known: Option<&VersionToken>,
) -> Result<RowRead, TableError> {
    let key = silo.row_key();
    let mut found = ask(
        session,
        place,
        &sql::read_row(&place.key, &sql::text(&key)),
        Some(sql::settle(&place.key, None)),
    )
    .await?;
    if found.version.is_none() && known.is_none() {
        // Which kind of nothing it is, is worth another question.
        found = ask(session, place, &sql::look(&place.key), None).await?;
    }
    let version = found.current(known)?;
    let token = version.row.token(&[]);
    let Some((_, body)) = found.rows.iter().find(|(k, _)| *k == key) else {
        return Ok(RowRead {
            token,
            row: None,
            heartbeat: None,
        });
    };
    let row = match place.cache.rows().by_key(&key) {
        Some(row) if row.body() == body => row.clone(),
        _ => Row::decode(key, body.as_str()),
    };
    Ok(RowRead {
        token,
        row: Some(row),
        heartbeat: found.heartbeats.silos.get(silo).cloned(),
    })
}

/// The error for no version row.
pub(super) fn absent(known: Option<&VersionToken>) -> TableError {
    match known {
        None => error(
            TableErrorKind::NotInitialized,
            "the database has no such cluster",
        ),
        Some(_) => error(
            TableErrorKind::TableReplaced,
            "the table that was known is gone",
        ),
    }
}

/// The error for rows that stand without a version row.
pub(super) fn rows_without_version(key: &str) -> TableError {
    error(
        TableErrorKind::Damaged,
        "the cluster has rows but no version row",
    )
    .with_key(key)
}

/// The error for a cluster that is marked.
pub(super) fn being_deleted() -> TableError {
    error(TableErrorKind::BeingDeleted, "the cluster is being deleted")
}
