//! Reads of the cells beside the document: the heartbeats of silos, and the cluster's own.

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;

use futures_util::StreamExt as _;
use futures_util::future::{try_join, try_join_all};
use futures_util::stream;
use membership_core::{Heartbeats, TableError, TableErrorKind};
use membership_provider::StoredHeartbeats;
use serde::{Deserialize, Serialize};

use crate::NatsDocuments;
use crate::client::{Link, is_missing, path};
use crate::error::{error, of_answer};
use crate::keys::{CLUSTER_CELL, silo_of_cell};
use crate::read::text;

/// How many requests for cells are under way at the same time. A server takes 10,000 of all clients.
const AT_ONCE: usize = 256;
/// A cell as this client has last seen or written it.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) sequence: u64,
    pub(crate) text: String,
}

/// The names of all cells, and when the bucket was made; the cells that were known; and the cells
/// that were got.
pub(crate) struct Listed {
    names: Option<(String, Vec<String>)>,
    known: BTreeMap<String, Cell>,
    got: BTreeMap<String, Cell>,
}

#[derive(Serialize)]
struct Count<'a> {
    subjects_filter: &'a str,
}

#[derive(Deserialize)]
struct Counted {
    #[serde(default)]
    total: usize,
    created: String,
    config: Copies,
    #[serde(default)]
    cluster: Option<Cluster>,
    state: Subjects,
}

/// A server that is alone has no name of a cluster.
#[derive(Deserialize)]
struct Cluster {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Copies {
    num_replicas: usize,
}

#[derive(Deserialize)]
struct Subjects {
    #[serde(default)]
    subjects: Option<HashMap<String, u64>>,
}

impl NatsDocuments {
    /// The names of all cells, and at the same time the cells whose names are known.
    pub(crate) async fn known_cells(&self, link: &Link) -> Result<Listed, TableError> {
        let known = self.seen_cells();
        let names: Vec<&String> = known.keys().collect();
        let (names, got) = try_join(self.cell_names(link), self.get_all(link, &names)).await?;
        Ok(Listed { names, known, got })
    }

    /// All cells: those that were got together with their names, and the new ones.
    pub(crate) async fn all_cells(
        &self,
        link: &Link,
        listed: Listed,
    ) -> Result<Heartbeats, TableError> {
        let Listed {
            names,
            known,
            mut got,
        } = listed;
        let Some((bucket, names)) = names else {
            return Ok(Heartbeats::default());
        };
        let fresh: Vec<&String> = names.iter().filter(|it| !known.contains_key(*it)).collect();
        got.extend(self.get_all(link, &fresh).await?);
        let cells = self.keep_cells(bucket, got);
        let parsed = cells.into_iter().filter_map(|(name, cell)| {
            if name == CLUSTER_CELL {
                return Some((name, cell.text));
            }
            Some((silo_of_cell(&name)?.row_key(), cell.text))
        });
        Ok(StoredHeartbeats::from_cells(parsed, CLUSTER_CELL).shown(None))
    }

    fn seen_cells(&self) -> BTreeMap<String, Cell> {
        let seen = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        seen.1.clone()
    }

    /// Remembers cells. With several servers a cell that this client has seen newer stays as it was
    /// seen, in the same bucket.
    fn keep_cells(&self, bucket: String, got: BTreeMap<String, Cell>) -> BTreeMap<String, Cell> {
        let one = self.has_one_replica();
        let mut seen = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let known = std::mem::take(&mut seen.1);
        let same = seen.0 == bucket && !one;
        let newer = |name: &String, cell: Cell| match known.get(name) {
            Some(known) if same && known.sequence > cell.sequence => known.clone(),
            _ => cell,
        };
        let cells: BTreeMap<String, Cell> = got
            .into_iter()
            .map(|(name, cell)| {
                let cell = newer(&name, cell);
                (name, cell)
            })
            .collect();
        *seen = (bucket, cells.clone());
        let sequences = cells
            .iter()
            .map(|(name, cell)| (name.as_str(), cell.sequence));
        self.written.learn(sequences);
        cells
    }

    /// The names of all cells, and when the bucket was made; `None` if there is no bucket.
    async fn cell_names(&self, link: &Link) -> Result<Option<(String, Vec<String>)>, TableError> {
        let found = self.names(link, &self.keys.cells).await?;
        Ok(found.map(|(bucket, subjects)| {
            let names = subjects.iter().filter_map(|it| self.keys.cell_name(it));
            (bucket, names.map(str::to_owned).collect())
        }))
    }

    /// The subjects that have messages, of those with these names, and when the bucket was made.
    pub(crate) async fn names(
        &self,
        link: &Link,
        subjects: &str,
    ) -> Result<Option<(String, Vec<String>)>, TableError> {
        let body = Count {
            subjects_filter: subjects,
        };
        let info = path("INFO", &self.client.config().bucket);
        let counted: Counted = match link.api(&info, &body).await? {
            Ok(counted) => counted,
            Err(e) if is_missing(&e) => return Ok(None),
            Err(e) => return Err(of_answer(&e)),
        };
        let in_cluster = counted.cluster.is_some_and(|it| !it.name.is_empty());
        self.learn_replicas(counted.config.num_replicas, in_cluster);
        let subjects = counted.state.subjects.unwrap_or_default();
        if counted.total > subjects.len() {
            let message = format!("the cluster has {} heartbeats: delete it", counted.total);
            return Err(error(TableErrorKind::LimitExceeded, message));
        }
        Ok(Some((counted.created, subjects.into_keys().collect())))
    }

    /// Those of these cells that exist.
    async fn get_all(
        &self,
        link: &Link,
        names: &[&String],
    ) -> Result<BTreeMap<String, Cell>, TableError> {
        let get = |name: &String| {
            let (name, subject) = (name.clone(), self.keys.cell(name));
            async move {
                let message = self.last_of(link, &subject).await?;
                let cell = message.map(|message| {
                    let sequence = message.sequence;
                    text(message).map(|text| (name, Cell { sequence, text }))
                });
                cell.transpose()
            }
        };
        let got: Vec<Option<(String, Cell)>> = if names.len() <= AT_ONCE {
            try_join_all(names.iter().map(|name| get(name))).await?
        } else {
            let all: Vec<_> = names.iter().map(|name| get(name)).collect();
            let mut answers = stream::iter(all).buffer_unordered(AT_ONCE);
            let mut got = Vec::with_capacity(names.len());
            while let Some(answer) = answers.next().await {
                got.push(answer?);
            }
            got
        };
        Ok(got.into_iter().flatten().collect())
    }
}
