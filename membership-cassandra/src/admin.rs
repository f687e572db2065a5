//! Keyspace and tables, and the beginning and the end of a cluster in them. Clauses T1, T8, T12.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use futures_util::future::try_join;
use membership_core::{
    InitializeRequest, Operation, TableError, TableErrorKind, VersionRow, encoding::LAYOUT,
};
use scylla::response::query_result::QueryResult;
use scylla::value::CqlValue;
use tokio::time::{Instant, sleep, timeout_at};

use crate::codec::{self, Gathered, Stored, Value, big, int, text};
use crate::commit::still_unknown;
use crate::config::wrong;
use crate::error::{Doubt, Failed, error, shorten};
use crate::link::{Link, Open};
use crate::schema::{self, COLUMNS};
use crate::table::Inner;

/// How often something is tried that others do at the same time; each failure is somebody's progress.
const COLLISIONS: u64 = 20;
/// Rows that are removed at once.
const BATCH: usize = 100;
/// How long it may take until keyspace and tables are there, and every node knows them.
const CREATING: Duration = Duration::from_secs(60);

/// What stands under the names of our tables.
#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    Ours,
}

impl Link {
    /// Looks at the tables without touching them.
    ///
    /// # Errors
    /// `ForeignTable` where they have other columns.
    pub(crate) async fn look(&self, deadline: Instant) -> Result<Found, TableError> {
        // Without values: nothing of it is prepared, which the making of tables could undo.
        let columns = format!(
            "SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = '{}' AND table_name IN ('silos', \
             'heartbeats')",
            self.config.keyspace()
        );
        let answer = self
            .query_schema(deadline, false, &columns)
            .await
            .map_err(|failed| failed.error)?;
        let mut found = BTreeMap::new();
        for row in codec::named(answer)? {
            let word = |name: &str| {
                row.get(name)
                    .and_then(CqlValue::as_text)
                    .cloned()
                    .unwrap_or_default()
            };
            found.insert((word("table_name"), word("column_name")), word("type"));
        }
        for table in [schema::SILOS, schema::HEARTBEATS] {
            let there = found.keys().any(|(of, _)| of == table);
            let fits = COLUMNS
                .iter()
                .filter(|(of, ..)| *of == table)
                .all(|(of, name, kind)| {
                    found
                        .get(&((*of).to_owned(), (*name).to_owned()))
                        .is_some_and(|found| found == kind)
                });
            if there && !fits {
                let message = format!(
                    "the table {}.{table} has other columns than ours: name another keyspace",
                    self.config.keyspace()
                );
                return Err(error(TableErrorKind::ForeignTable, message).at(&self.at));
            }
            if !there {
                return Ok(Found::Nothing);
            }
        }
        Ok(Found::Ours)
    }

    /// Why a request is not taken: where the tables are somebody else's, that is the reason.
    pub(crate) async fn explained(&self, e: TableError) -> TableError {
        match e.kind() {
            TableErrorKind::Configuration => self
                .look(self.deadline())
                .await
                .err()
                .filter(|e| e.kind() == TableErrorKind::ForeignTable)
                .unwrap_or(e),
            _ => e,
        }
    }

    /// Makes keyspace and tables where they are missing, and returns when every node knows them. Anybody may do so at the same time: all ask the
    /// same node, which makes one after another.
    async fn prepare(&self) -> Result<(), TableError> {
        let until = Instant::now() + CREATING.max(self.config.timeout());
        self.nodes_known(until).await?;
        let mut agreed = false;
        loop {
            if matches!(self.look(until.min(self.deadline())).await?, Found::Ours) {
                return self.agreed(until).await;
            }
            if !self.config.may_create() {
                let what = self
                    .config
                    .schema()
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ");
                return Err(wrong(format!(
                    "keyspace or tables are missing, and create=false: make them with {what}"
                ))
                .at(&self.at));
            }
            // What was made somewhere else a moment ago is known here then. And of many that begin at once one is first, and spares the others
            // the making.
            if !agreed {
                sleep(Duration::from_millis(
                    RandomState::new().hash_one(&self.cluster) % 300,
                ))
                .await;
                self.agreed(until).await?;
                agreed = true;
                continue;
            }
            if Instant::now() >= until {
                let message = "keyspace and tables were made, and are not there: do the nodes agree on the schema?";
                return Err(error(TableErrorKind::Unavailable, message).at(&self.at));
            }
            match self.create(until).await {
                Ok(()) => {}
                // Somebody else was at it.
                Err(e)
                    if Instant::now() < until
                        && matches!(
                            e.kind(),
                            TableErrorKind::Busy | TableErrorKind::Unavailable
                        ) =>
                {
                    tracing::debug!(error = %e, "keyspace and tables are not made yet");
                    sleep(Duration::from_millis(200)).await;
                }
                Err(e) => return Err(e),
            }
        }
    }

    async fn create(&self, until: Instant) -> Result<(), TableError> {
        let replication = match self.config.chosen_replication()? {
            Some(chosen) => chosen,
            None => self.usual_replication().await?,
        };
        let mut statements = vec![schema::keyspace(self.config.keyspace(), &replication)];
        statements.extend(schema::tables(self.config.keyspace()));
        for text in statements {
            // Making a table takes longer than anything else.
            let deadline =
                until.min(Instant::now() + self.config.timeout().max(Duration::from_secs(20)));
            match self.query_schema(deadline, true, &text).await {
                Ok(_) => self.agreed(until).await?,
                Err(failed)
                    if failed.doubt == Doubt::None
                        && failed.error.kind() != TableErrorKind::Configuration =>
                {
                    return Err(failed.error);
                }
                // Made or not, by this one or another: looked at again.
                Err(failed) => {
                    return Err(
                        error(TableErrorKind::Busy, failed.error.message().to_owned()).at(&self.at),
                    );
                }
            }
        }
        tracing::info!(keyspace = self.config.keyspace(), at = self.at, %replication, "Cassandra tables created");
        Ok(())
    }

    /// Three replicas in each data centre, or as many as it has nodes.
    async fn usual_replication(&self) -> Result<String, TableError> {
        let open = self.open(self.deadline()).await?;
        let mut nodes: BTreeMap<String, u8> = BTreeMap::new();
        for node in open.session.get_cluster_state().get_nodes_info() {
            if let Some(datacenter) = &node.datacenter {
                let count = nodes.entry(datacenter.replace('\'', "''")).or_default();
                *count = count.saturating_add(1);
            }
        }
        if nodes.is_empty() {
            return Err(error(
                TableErrorKind::Unavailable,
                "no node says in which data centre it is",
            )
            .at(&self.at));
        }
        if nodes.values().any(|count| *count < 3) {
            tracing::warn!(
                ?nodes,
                "the keyspace gets fewer than three replicas, because there are no more nodes: one that fails takes the table along"
            );
        }
        Ok(nodes
            .iter()
            .map(|(name, count)| format!("'{name}': {}", count.min(&3)))
            .collect::<Vec<_>>()
            .join(", "))
    }

    /// A driver that could not ask which nodes there are goes on with the addresses it was given, and asks again much later. That does for
    /// rows, but says neither how many replicas there can be nor which node makes the tables.
    async fn nodes_known(&self, until: Instant) -> Result<(), TableError> {
        loop {
            let open = self.open(until.min(self.deadline())).await?;
            if open
                .session
                .get_cluster_state()
                .get_nodes_info()
                .iter()
                .any(|node| node.datacenter.is_some())
            {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(error(
                    TableErrorKind::Unavailable,
                    "the nodes do not say which nodes there are",
                )
                .at(&self.at));
            }
            // What comes of it is seen in the next turn.
            let _ = timeout_at(until.min(self.deadline()), open.session.refresh_metadata()).await;
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn agreed(&self, until: Instant) -> Result<(), TableError> {
        loop {
            let open = self.open(until.min(self.deadline())).await?;
            match self.agree(&open, until.min(self.deadline())).await {
                Err(_) if Instant::now() < until => sleep(Duration::from_millis(100)).await,
                other => return other,
            }
        }
    }

    /// Whether all nodes that can be asked have the same schema now.
    ///
    /// # Errors
    /// `Unavailable` if they have not, or do not say.
    pub(crate) async fn agree(&self, open: &Open, deadline: Instant) -> Result<(), TableError> {
        // The driver asks every node it is connected to, and waits for each.
        let why = match timeout_at(deadline, open.session.check_schema_agreement()).await {
            Ok(Ok(Some(_))) => return Ok(()),
            Ok(Ok(None)) => "the nodes do not agree on the schema".to_owned(),
            Ok(Err(e)) => format!(
                "the nodes do not say their schema ({})",
                shorten(&e.to_string())
            ),
            Err(_) => "the nodes do not all say their schema in time".to_owned(),
        };
        Err(error(TableErrorKind::Unavailable, why).at(&self.at))
    }
}

impl Inner {
    /// Everything of the cluster but its heartbeats.
    pub(crate) async fn gather(&self, deadline: Instant) -> Result<Gathered, TableError> {
        let values = (text(&self.link.cluster),);
        let answer = self
            .link
            .execute(deadline, false, |all| &all.all, values)
            .await
            .map_err(|failed| failed.error)?;
        Ok(Gathered::new(codec::named(answer)?))
    }

    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let row = VersionRow::initial(request.table_id, request.settings.clone());
        let mut unknown = None;
        match self.started(&row, &mut unknown).await {
            Ok(()) => Ok(()),
            Err(e) => Err(match unknown {
                Some(ours) => still_unknown(ours.error.message(), e).at(&self.link.at),
                None => e,
            }),
        }
    }

    /// Returns when there is a version row. `unknown` is ours while it is not known what became of it.
    async fn started(
        &self,
        row: &VersionRow,
        unknown: &mut Option<Failed>,
    ) -> Result<(), TableError> {
        for turn in 0..COLLISIONS {
            let gathered = match self.told().await {
                Ok(gathered) => gathered,
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                    self.link.prepare().await?;
                    continue;
                }
                Err(e) => return Err(self.link.explained(e).await),
            };
            match codec::usable(
                gathered.version.as_ref(),
                gathered.stray(),
                None,
                Operation::Initialize,
                &self.decided_by,
            ) {
                // What nobody is at work on any more, and is not there, did not happen.
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                    drop(unknown.take_if(|ours| ours.doubt == Doubt::Settled))
                }
                other => {
                    *unknown = None;
                    return other.map(drop);
                }
            }
            match self.begin(row).await {
                Ok(true) => {
                    tracing::info!(cluster = %self.cluster, table_id = %row.table_id, "membership table created");
                    return Ok(());
                }
                Ok(false) => {}
                Err(failed) if failed.doubt != Doubt::None => {
                    tracing::debug!(error = %failed.error, "whether the version row was made is looked at");
                    unknown.get_or_insert(failed);
                }
                Err(failed)
                    if matches!(
                        failed.error.kind(),
                        TableErrorKind::Busy | TableErrorKind::NotInitialized
                    ) =>
                {
                    tracing::debug!(error = %failed.error, "the version row is not made yet");
                }
                Err(failed) => return Err(failed.error),
            }
            sleep(Duration::from_millis(
                RandomState::new().hash_one(turn) % (20 * (turn + 1)),
            ))
            .await;
        }
        Err(error(
            TableErrorKind::Busy,
            "others make the same table at the same time",
        ))
    }

    /// The version row; where there is none, all rows. As the node that is asked knows it: whether others have tables that it misses is looked
    /// at before any are made.
    async fn told(&self) -> Result<Gathered, TableError> {
        let link = &self.link;
        let of_version = (text(&link.cluster), codec::keys([schema::VERSION]));
        let answer = link
            .told(link.deadline(), false, |all| &all.some, of_version)
            .await
            .map_err(|failed| failed.error)?;
        let version = Gathered::new(codec::named(answer)?);
        if version.version.is_some() {
            return Ok(version);
        }
        let answer = link
            .told(
                link.deadline(),
                false,
                |all| &all.all,
                (text(&link.cluster),),
            )
            .await
            .map_err(|failed| failed.error)?;
        Ok(Gathered::new(codec::named(answer)?))
    }

    /// Writes the version row of a new cluster; false where there was one.
    async fn begin(&self, row: &VersionRow) -> Result<bool, Failed> {
        let settings = codec::json(&row.settings).map_err(Failed::certain)?;
        let values = vec![
            text(&self.link.cluster),
            text(row.table_id.to_string()),
            big(row.version),
            text(row.last_commit().to_string()),
            big(row.row_count),
            int(row.layout),
            int(row.min_layout),
            text(settings),
            text(&self.decided_by),
        ];
        let answer = self
            .link
            .told(self.link.deadline(), true, |all| &all.begin, values)
            .await?;
        match codec::named(answer) {
            Ok(rows) => Ok(codec::verdict(rows).0),
            Err(e) => Err(Failed {
                doubt: Doubt::Settled,
                ..Failed::certain(e)
            }),
        }
    }

    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        let link = &self.link;
        for turn in 0..COLLISIONS {
            let (gathered, beats) = match try_join(
                self.gather(link.deadline()),
                link.beat_times(link.deadline()),
            )
            .await
            {
                // No table: nothing to delete.
                Err(e) if e.kind() == TableErrorKind::NotInitialized => return Ok(()),
                other => other?,
            };
            if let Some(stored) = &gathered.version {
                codec::decided(stored.serial.as_deref(), &self.decided_by)?;
                let readable = match codec::any_version(stored, &self.decided_by) {
                    Err(e) if e.kind() != TableErrorKind::Damaged => return Err(e),
                    read => read.is_ok(),
                };
                if !stored.deleting {
                    self.mark(stored, readable).await?;
                    continue;
                }
            }
            let mut gone = true;
            for rows in gathered.rows.chunks(BATCH) {
                let values: Vec<_> = rows
                    .iter()
                    .map(|(key, _)| vec![text(&link.cluster), text(key)])
                    .collect();
                let statements = |all: &schema::Statements| vec![all.remove.clone(); rows.len()];
                gone &= self.tried(link.batch(link.deadline(), statements, &values).await)?;
            }
            if !gone {
                sleep(Duration::from_millis(10 * (turn + 1))).await;
                continue;
            }
            link.remove_beats(&beats).await?;
            if gathered.version.is_none() {
                return Ok(());
            }
            // Refused where somebody else has removed it, and perhaps made another one since.
            let values = (text(&link.cluster),);
            if self.tried(
                link.execute(link.deadline(), true, |all| &all.unmark, values)
                    .await,
            )? {
                tracing::info!(cluster = %self.cluster, "membership table deleted");
                return Ok(());
            }
            match self.version(link.deadline()).await? {
                None => return Ok(()),
                Some(stored)
                    if !stored.deleting
                        && codec::any_version(&stored, &self.decided_by).is_ok() =>
                {
                    return Ok(());
                }
                // It is still there, or a damaged one is.
                Some(_) => {}
            }
        }
        Err(error(
            TableErrorKind::Busy,
            "somebody writes what is being deleted",
        ))
    }

    /// Begins the deletion; whether it was begun is looked at. One that is readable may change meanwhile and is meant all the same. One that is
    /// not must be the one that was seen: nothing in it says that this build may touch what somebody has put in its place.
    async fn mark(&self, stored: &Stored, readable: bool) -> Result<(), TableError> {
        let (link, partition) = (&self.link, text(&self.link.cluster));
        let marked = if readable {
            let values = (partition, int(LAYOUT), text(&self.decided_by));
            link.execute(link.deadline(), true, |all| &all.mark, values)
                .await
        } else {
            let mut values = vec![partition];
            values.extend(stored.fence.iter().cloned().map(Value::Set));
            link.execute(link.deadline(), true, |all| &all.mark_damaged, values)
                .await
        };
        self.tried(marked).map(drop)
    }

    /// Whether a transaction was applied; false where it is not known, and has to be looked at again.
    fn tried(&self, answer: Result<QueryResult, Failed>) -> Result<bool, TableError> {
        match answer {
            Ok(answer) => Ok(codec::verdict(codec::named(answer)?).0),
            Err(failed) if failed.doubt == Doubt::Settled => Ok(false),
            Err(failed) => Err(failed.error),
        }
    }
}
