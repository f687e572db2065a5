//! Keyspace and tables, and the beginning and the end of a cluster in them. Clauses T1, T8, T12.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use membership_core::{InitializeRequest, Operation, TableError, TableErrorKind, VersionRow, encoding::LAYOUT};
use scylla::value::CqlValue;
use tokio::time::{Instant, sleep};

use crate::codec::{self, Gathered, big, int, text};
use crate::config::wrong;
use crate::error::{Doubt, error};
use crate::link::Link;
use crate::schema::{self, COLUMNS};
use crate::table::Inner;

/// How often something is tried that others do at the same time; each failure is somebody's progress.
const COLLISIONS: u64 = 20;
/// Rows that are removed at once.
const BATCH: usize = 100;
/// How long it may take until keyspace and tables are there, and every node knows them.
const CREATING: Duration = Duration::from_secs(60);

/// What stands under the names of our tables.
enum Found {
    Nothing,
    Ours,
}

impl Link {
    /// Looks at the tables without touching them.
    ///
    /// # Errors
    /// `ForeignTable` where they have other columns.
    async fn look(&self) -> Result<Found, TableError> {
        let columns = "SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = ? AND table_name IN ('silos', \
                       'heartbeats')";
        let answer = self.query(self.deadline(), false, columns, (self.config.keyspace(),)).await.map_err(|failed| failed.error)?;
        let mut found = BTreeMap::new();
        for row in codec::named(answer)? {
            let word = |name: &str| row.get(name).and_then(CqlValue::as_text).cloned().unwrap_or_default();
            found.insert((word("table_name"), word("column_name")), word("type"));
        }
        for table in [schema::SILOS, schema::HEARTBEATS] {
            let there = found.keys().any(|(of, _)| of == table);
            let fits = COLUMNS
                .iter()
                .filter(|(of, ..)| *of == table)
                .all(|(of, name, kind)| found.get(&((*of).to_owned(), (*name).to_owned())).is_some_and(|found| found == kind));
            if there && !fits {
                let message = format!("the table {}.{table} has other columns than ours: name another keyspace", self.config.keyspace());
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
            TableErrorKind::Configuration => self.look().await.err().filter(|e| e.kind() == TableErrorKind::ForeignTable).unwrap_or(e),
            _ => e,
        }
    }

    /// Makes keyspace and tables where they are missing, and returns when every node knows them. Anybody may do so at the same time.
    async fn prepare(&self) -> Result<(), TableError> {
        let until = Instant::now() + CREATING.max(self.config.timeout());
        let mut turn = 0;
        loop {
            if matches!(self.look().await?, Found::Ours) {
                return self.agreed(until).await;
            }
            if !self.config.may_create() {
                let what = self.config.schema().split_whitespace().collect::<Vec<_>>().join(" ");
                return Err(wrong(format!("keyspace or tables are missing, and create=false: make them with {what}")).at(&self.at));
            }
            // Of many that begin at once one is first, and the others find what it has made: nodes that make the same table at the same
            // time may take it for two.
            if turn == 0 {
                sleep(Duration::from_millis(RandomState::new().hash_one(&self.cluster) % 300)).await;
                turn = 1;
                continue;
            }
            match self.create(until).await {
                Ok(()) => {}
                // Somebody else was at it.
                Err(e) if Instant::now() < until && matches!(e.kind(), TableErrorKind::Busy | TableErrorKind::Unavailable) => {
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
            let deadline = until.min(Instant::now() + self.config.timeout().max(Duration::from_secs(20)));
            match self.query(deadline, true, &text, ()).await {
                Ok(_) => self.agreed(until).await?,
                Err(failed) if failed.doubt == Doubt::None && failed.error.kind() != TableErrorKind::Configuration => {
                    return Err(failed.error);
                }
                // Made or not, by this one or another: looked at again.
                Err(failed) => return Err(error(TableErrorKind::Busy, failed.error.message().to_owned()).at(&self.at)),
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
            return Ok("'replication_factor': 3".to_owned());
        }
        if nodes.values().any(|count| *count < 3) {
            tracing::warn!(
                ?nodes,
                "the keyspace gets fewer than three replicas, because there are no more nodes: one that fails takes the table along"
            );
        }
        Ok(nodes.iter().map(|(name, count)| format!("'{name}': {}", count.min(&3))).collect::<Vec<_>>().join(", "))
    }

    async fn agreed(&self, until: Instant) -> Result<(), TableError> {
        loop {
            let open = self.open(self.deadline()).await?;
            match open.session.check_schema_agreement().await {
                Ok(Some(_)) => return Ok(()),
                _ if Instant::now() < until => sleep(Duration::from_millis(100)).await,
                Ok(None) => return Err(error(TableErrorKind::Unavailable, "the nodes do not agree on the schema").at(&self.at)),
                Err(e) => return Err(error(TableErrorKind::Unavailable, format!("the nodes do not say their schema ({e})")).at(&self.at)),
            }
        }
    }
}

impl Inner {
    /// Everything of the cluster but its heartbeats.
    pub(crate) async fn gather(&self, deadline: Instant) -> Result<Gathered, TableError> {
        let values = (text(&self.link.cluster),);
        let answer = self.link.execute(deadline, false, |all| &all.all, values).await.map_err(|failed| failed.error)?;
        Ok(Gathered::new(codec::named(answer)?))
    }

    /// # Errors
    /// As [`MembershipTable::initialize`](membership_core::MembershipTable::initialize).
    pub(crate) async fn initialize(&self, request: &InitializeRequest) -> Result<(), TableError> {
        let row = VersionRow::initial(request.table_id, request.settings.clone());
        for turn in 0..COLLISIONS {
            let gathered = match self.version(self.link.deadline()).await {
                // Rows matter only where there is no version row.
                Ok(Some(stored)) => Gathered { version: Some(stored), rows: Vec::new() },
                Ok(None) => self.gather(self.link.deadline()).await?,
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {
                    self.link.prepare().await?;
                    continue;
                }
                Err(e) => return Err(self.link.explained(e).await),
            };
            match codec::usable(gathered.version.as_ref(), gathered.stray(), None, Operation::Initialize, &self.decided_by) {
                Err(e) if e.kind() == TableErrorKind::NotInitialized => {}
                other => return other.map(drop),
            }
            match self.begin(&row).await {
                Ok(true) => {
                    tracing::info!(cluster = %self.cluster, table_id = %request.table_id, "membership table created");
                    return Ok(());
                }
                Ok(false) => {}
                Err(e) if matches!(e.kind(), TableErrorKind::Busy | TableErrorKind::OutcomeUnknown) => {
                    tracing::debug!(error = %e, "others make the same cluster");
                }
                Err(e) => return Err(e),
            }
            sleep(Duration::from_millis(RandomState::new().hash_one(turn) % (20 * (turn + 1)))).await;
        }
        Err(error(TableErrorKind::Busy, "others make the same table at the same time"))
    }

    /// Writes the version row of a new cluster; false where there was one.
    async fn begin(&self, row: &VersionRow) -> Result<bool, TableError> {
        let values = vec![
            text(&self.link.cluster),
            text(row.table_id.to_string()),
            big(row.version),
            text(row.last_commit().to_string()),
            big(row.row_count),
            int(row.layout),
            int(row.min_layout),
            text(codec::json(&row.settings)?),
            text(&self.decided_by),
        ];
        let answer = self.link.execute(self.link.deadline(), true, |all| &all.begin, values).await.map_err(|failed| failed.error)?;
        Ok(codec::verdict(codec::named(answer)?).0)
    }

    /// # Errors
    /// As [`MembershipTable::delete`](membership_core::MembershipTable::delete).
    pub(crate) async fn delete(&self) -> Result<(), TableError> {
        let link = &self.link;
        for turn in 0..COLLISIONS {
            let gathered = match self.gather(link.deadline()).await {
                // No table: nothing to delete.
                Err(e) if e.kind() == TableErrorKind::NotInitialized => return Ok(()),
                other => other?,
            };
            if let Some(stored) = &gathered.version {
                match codec::any_version(stored, &self.decided_by) {
                    Err(e) if e.kind() != TableErrorKind::Damaged => return Err(e),
                    Ok(row) if row.deleting => {}
                    _ => {
                        let values = (text(&link.cluster), int(LAYOUT), text(&self.decided_by));
                        self.tried(link.execute(link.deadline(), true, |all| &all.mark, values).await)?;
                        continue;
                    }
                }
            }
            let mut gone = true;
            for rows in gathered.rows.chunks(BATCH) {
                let values: Vec<_> = rows.iter().map(|(key, _)| vec![text(&link.cluster), text(key)]).collect();
                let statements = |all: &schema::Statements| vec![all.remove.clone(); rows.len()];
                gone &= self.tried(link.batch(link.deadline(), statements, &values).await)?;
            }
            if !gone {
                sleep(Duration::from_millis(10 * (turn + 1))).await;
                continue;
            }
            let values = (text(&link.cluster),);
            link.execute(link.deadline(), true, |all| &all.remove_all_beats, values.clone()).await.map_err(|failed| failed.error)?;
            if gathered.version.is_none() {
                return Ok(());
            }
            // Refused where somebody else has removed it, and perhaps made another one since.
            if self.tried(link.execute(link.deadline(), true, |all| &all.unmark, values).await)? {
                tracing::info!(cluster = %self.cluster, "membership table deleted");
                return Ok(());
            }
            match self.version(link.deadline()).await? {
                Some(stored) if codec::any_version(&stored, &self.decided_by).is_ok_and(|row| row.deleting) => {}
                _ => return Ok(()),
            }
        }
        Err(error(TableErrorKind::Busy, "somebody writes what is being deleted"))
    }

    /// Whether a transaction was applied; false where it is not known, and has to be looked at again.
    fn tried(&self, answer: Result<scylla::response::query_result::QueryResult, crate::error::Failed>) -> Result<bool, TableError> {
        match answer {
            Ok(answer) => Ok(codec::verdict(codec::named(answer)?).0),
            Err(failed) if failed.doubt == Doubt::Settled => Ok(false),
            Err(failed) => Err(failed.error),
        }
    }
}
