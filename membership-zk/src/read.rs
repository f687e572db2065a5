//! `read` and `read_row`. Clauses T6, T12, T16.

use std::sync::Arc;

use membership_core::{
    Operation, ReadAnswer, ReadRequest, Row, RowRead, Rows, SiloAddress, Snapshot, TableError,
    TableErrorKind, VersionRow, VersionToken, usable_version_row,
};
use tokio::time::Instant;

use crate::STORE;
use crate::error::error;
use crate::gather::{Ask, Gathered, look, portions};
use crate::link::Session;
use crate::table::{Inner, Seen};

/// How often a table that changes while it is read is looked at. Each turn asks for what the one before it lacked, and takes less time than
/// a commit.
const TURNS: usize = 24;

impl Inner {
    /// # Errors
    /// As [`MembershipTable::read`](membership_core::MembershipTable::read).
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<ReadAnswer, TableError> {
        let deadline = self.link.deadline();
        let session = self.link.session(deadline).await?;
        if request.barrier || !session.is_caught_up() {
            self.link
                .barrier(&session, self.place.cluster(), deadline)
                .await?;
            return self.read_over(&session, request, deadline).await;
        }
        match self.read_over(&session, request, deadline).await {
            // The server that was asked may be behind, and not know of the table, or of its last versions.
            Err(e) if may_be_behind(&e) => {
                self.link
                    .barrier(&session, self.place.cluster(), deadline)
                    .await?;
                self.read_over(&session, request, deadline).await
            }
            answer => answer,
        }
    }

    async fn read_over(
        &self,
        session: &Session,
        request: &ReadRequest,
        deadline: Instant,
    ) -> Result<ReadAnswer, TableError> {
        let known = request.known.as_ref();
        let base = known.and_then(|known| {
            self.base()
                .filter(|seen| seen.snapshot.token.same_commit(known))
        });
        // What is new is usually there with the second look. A barrier has taken a round trip already.
        let usual = if request.barrier { 1 } else { 2 };
        let seen = self
            .seen()
            .map(|seen| seen.snapshot.rows)
            .unwrap_or_default();
        let mut got = base
            .as_ref()
            .map(|base| Gathered::from(&base.snapshot))
            .unwrap_or_default();
        let guess: Vec<String> = seen.iter().map(|row| row.key().to_owned()).collect();
        // Who knows a version reads its heartbeats alone at first.
        let mut asks = match &base {
            Some(_) if !request.heartbeats => {
                portions(&self.place, Vec::new(), false, false, &seen)
            }
            Some(_) => portions(&self.place, guess, false, true, &seen),
            None => portions(&self.place, guess, true, request.heartbeats, &seen),
        };
        if request.heartbeats
            && let Some(first) = asks.first_mut()
        {
            first.cell = true;
        }
        for turn in 1..=TURNS {
            let mut last = None;
            for ask in asks {
                let mut look = look(&self.link, session, &self.place, ask, deadline).await?;
                let row =
                    usable_version_row(look.text(), look.stray(), known, Operation::Read, STORE)?;
                got.take(&row, &mut look, &seen);
                last = Some((row, look));
            }
            let Some((row, look)) = last else { break };
            if let Some(base) = &base
                && base.snapshot.token.same_commit(&row.token(&[]))
            {
                let heartbeats = request
                    .heartbeats
                    .then(|| got.heartbeats(&base.snapshot.rows));
                return Ok(ReadAnswer::Unchanged { heartbeats });
            }
            got.candidate(row, look.znode.unwrap_or_default(), &look.children);
            if let Some((version, rows)) = got.whole() {
                complete(&version.row, &rows)?;
                let heartbeats = request.heartbeats.then(|| got.heartbeats(&rows));
                let snapshot = Snapshot {
                    token: version.row.token(&[]),
                    version_row: Arc::new(version.row.clone()),
                    rows,
                };
                self.remember(
                    Seen {
                        snapshot: snapshot.clone(),
                        data_version: version.data_version,
                    },
                    base.is_none(),
                );
                return Ok(ReadAnswer::Snapshot {
                    snapshot,
                    heartbeats,
                });
            }
            // A table that changes all the time is asked for as a whole, once: unless it is large, that is one moment.
            let wanted = if turn == usual {
                got.keys()
            } else {
                got.doubtful()
            };
            asks = portions(&self.place, wanted, true, request.heartbeats, &seen);
        }
        Err(error(
            TableErrorKind::Busy,
            format!("the table changed each of the {TURNS} times that it was looked at"),
        ))
    }

    /// # Errors
    /// As [`MembershipTable::read_row`](membership_core::MembershipTable::read_row).
    pub(crate) async fn read_row(
        &self,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
    ) -> Result<RowRead, TableError> {
        let deadline = self.link.deadline();
        let session = self.link.session(deadline).await?;
        let mut barrier = !session.is_caught_up();
        loop {
            if barrier {
                self.link
                    .barrier(&session, self.place.cluster(), deadline)
                    .await?;
            }
            match self.read_row_over(&session, silo, known, deadline).await {
                Err(e) if !barrier && may_be_behind(&e) => barrier = true,
                answer => return answer,
            }
        }
    }

    async fn read_row_over(
        &self,
        session: &Session,
        silo: &SiloAddress,
        known: Option<&VersionToken>,
        deadline: Instant,
    ) -> Result<RowRead, TableError> {
        let key = silo.row_key();
        let ask = Ask {
            children: self.seen().is_none(),
            rows: vec![key.clone()],
            beats: vec![key.clone()],
            cell: false,
        };
        let look = look(&self.link, session, &self.place, ask, deadline).await?;
        let stray = look.stray().or_else(|| {
            look.rows
                .iter()
                .find(|(_, body)| body.is_some())
                .map(|(key, _)| key.as_str())
        });
        let version = usable_version_row(look.text(), stray, known, Operation::ReadRow, STORE)?;
        let row = look
            .rows
            .into_iter()
            .find_map(|(_, body)| Some(Row::decode(key.clone(), body?)));
        let heartbeat = look
            .beats
            .into_iter()
            .next()
            .map(|(_, beat)| beat)
            .filter(|_| row.is_some());
        Ok(RowRead {
            token: version.token(&[]),
            row,
            heartbeat,
        })
    }
}

/// That there are as many rows as the version row counts: both are of one look.
fn complete(row: &VersionRow, rows: &Rows) -> Result<(), TableError> {
    let (there, counted) = (rows.len() as u64, row.row_count);
    if there >= counted {
        return Ok(());
    }
    let message = format!(
        "{} of {counted} rows are gone: were their znodes removed by hand? restore a backup, or `membership delete` the cluster and restart \
         all silos",
        counted - there
    );
    Err(error(TableErrorKind::Damaged, message))
}

/// Whether a server that is behind the others would say the same of a table that is well.
fn may_be_behind(e: &TableError) -> bool {
    use TableErrorKind as Kind;
    matches!(
        e.kind(),
        Kind::NotInitialized
            | Kind::TableReplaced
            | Kind::TableRolledBack
            | Kind::Damaged
            | Kind::BeingDeleted
    )
}
