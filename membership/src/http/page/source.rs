//! Where the page's state comes from: a silo, or a table that is read again and again.
//!
//! A source has a revision, which counts what there was to see. Clients wait for a later one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::response::Response;
use bytes::Bytes;
use membership_core::{ClusterName, Discontinuity, SiloAddress, SiloStatus, WallTime};
use serde::Serialize;
use serde_json::{Value, json as object};
use tokio::sync::{Notify, watch};

use super::super::answer::{json, json_with, text_of};
use super::super::model;
use super::picture::{Attention, Picture};
use super::timeline::Timeline;

/// So many measurements and outages are shown.
const MEASUREMENTS: usize = 60;
const OUTAGES: usize = 20;

/// This process's clock.
pub(super) fn wall() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.unwrap_or_default().as_millis();
    WallTime::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// A time in which the table could not be used.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outage {
    pub(super) from: WallTime,
    pub(super) to: Option<WallTime>,
    pub(super) error: String,
}

/// How the table is doing.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct TableHealth {
    /// `available`, `unavailable`, or the kind of an error.
    pub(super) state: &'static str,
    pub(super) error: Option<String>,
    /// The last successful read.
    pub(super) read_at: Option<WallTime>,
    pub(super) reads: u64,
    pub(super) failed: u64,
    /// Of the last reads, in milliseconds, the oldest first.
    pub(super) latency_ms: VecDeque<f64>,
    /// The mean of all calls of this silo, in milliseconds.
    pub(super) mean_ms: Option<f64>,
    /// Commits that conflicted with another one; None where nobody counts them.
    pub(super) conflicts: Option<u64>,
    /// Commits whose outcome was unknown at first.
    pub(super) unknown: Option<u64>,
    /// The oldest first.
    pub(super) outages: VecDeque<Outage>,
}

impl TableHealth {
    pub(super) fn measured(&mut self, took: Duration) {
        if self.latency_ms.len() == MEASUREMENTS {
            self.latency_ms.pop_front();
        }
        let tenths = (took.as_secs_f64() * 10_000.0).round();
        self.latency_ms.push_back(tenths / 10.0);
    }

    /// Takes a new state; true if it is another one.
    pub(super) fn is_now(
        &mut self,
        state: &'static str,
        error: Option<String>,
        now: WallTime,
    ) -> bool {
        let is_other = self.state != state;
        self.state = state;
        if state == "available" {
            self.error = None;
            if let Some(open) = self.outages.back_mut().filter(|o| o.to.is_none()) {
                open.to = Some(now);
            }
            return is_other;
        }
        if is_other && self.outages.back().is_none_or(|o| o.to.is_some()) {
            if self.outages.len() == OUTAGES {
                self.outages.pop_front();
            }
            self.outages.push_back(Outage {
                from: now,
                to: None,
                error: error.clone().unwrap_or_else(|| state.to_owned()),
            });
        }
        self.error = error.or_else(|| self.error.take());
        is_other
    }
}

/// Who does not reach whom, as the silos say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Reach {
    /// How many silos were asked, and how many answered.
    pub(super) asked: usize,
    pub(super) answered: usize,
    /// Who does not reach silos that others reach.
    pub(super) partial: BTreeMap<SiloAddress, Vec<SiloAddress>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) picture: Option<Picture>,
    pub(super) table: TableHealth,
    pub(super) timeline: Timeline,
    /// None while nobody has been asked.
    pub(super) reach: Option<Reach>,
    /// The table that was read does not continue the one of before, and since when.
    pub(super) broken: Option<(Discontinuity, WallTime)>,
}

/// What is shown of one cluster.
pub(super) struct Source {
    pub(super) cluster: ClusterName,
    /// The silo that tells it; none for a table.
    pub(super) me: Option<SiloAddress>,
    /// The name of the store, where it is known.
    pub(super) store: Option<&'static str>,
    state: Mutex<State>,
    revision: watch::Sender<u64>,
    /// The rows as text, made once for all who ask.
    members: Mutex<Option<(Digest, Bytes)>>,
    /// The table is to be read at once.
    pub(super) again: Notify,
}

type Digest = (u128, u64, u128);

impl Source {
    pub(super) fn new(
        cluster: ClusterName,
        me: Option<SiloAddress>,
        store: Option<&'static str>,
    ) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            me,
            store,
            state: Mutex::default(),
            revision: watch::Sender::new(0),
            members: Mutex::default(),
            again: Notify::new(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows as of now: their ages go on while nothing happens.
    pub(super) fn picture(&self) -> Option<Picture> {
        let picture = self.state().picture.clone();
        picture.map(|picture| Picture {
            now: wall(),
            ..picture
        })
    }

    /// What a person should look at, the table first.
    pub(super) fn attention(&self, picture: &Picture) -> Vec<Attention> {
        let broken = {
            let state = self.state();
            // A silo that has started since then knows no other table.
            let knew = |since: WallTime| {
                let mut rows = picture.snapshot.rows.entries();
                rows.any(|e| e.status != SiloStatus::Dead && e.start_time <= since)
            };
            let broken = state.broken.filter(|(_, since)| knew(*since));
            broken.map(|(what, _)| what).or(match state.table.state {
                "table_replaced" => Some(Discontinuity::Replaced),
                "table_rolled_back" => Some(Discontinuity::RolledBack),
                _ => None,
            })
        };
        let mut all: Vec<Attention> = broken.map(Attention::broken).into_iter().collect();
        all.extend(picture.attention());
        all
    }

    /// Says that there is something new.
    pub(super) fn changed(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Waits until there is a later revision than this one, or the time is over.
    pub(super) async fn later_than(&self, known: u64, timeout: Duration) {
        let mut newest = self.revision.subscribe();
        let later = newest.wait_for(|revision| *revision > known);
        let _ = tokio::time::timeout(timeout, later).await;
    }

    /// The state as one JSON object; without the rows for a client that has those of this digest.
    pub(super) fn document(&self, has: Option<&str>, more: &[(&str, Value)]) -> Response {
        let revision = *self.revision.borrow();
        let now = wall();
        let (picture, mut head) = {
            let state = self.state();
            let head = object!({
                "revision": revision,
                "now": now,
                "source": if self.me.is_some() { "silo" } else { "table" },
                "silo": self.me,
                "cluster": self.cluster.to_string(),
                "store": self.store,
                "table": state.table,
                "reach": state.reach.as_ref().map(reach),
                "timeline": state.timeline.newest().take(200).collect::<Vec<_>>(),
            });
            (state.picture.clone(), head)
        };
        let Some(fields) = head.as_object_mut() else {
            return json(&head);
        };
        for (name, value) in more {
            fields.insert((*name).to_owned(), value.clone());
        }
        let Some(picture) = picture.map(|picture| Picture { now, ..picture }) else {
            return json(&head);
        };
        let view = picture.view();
        let row = &picture.snapshot.version_row;
        let keys = row.core.cluster_keys();
        let digest = model::digest(&view);
        let entries = || picture.snapshot.rows.entries();
        let stale: Vec<SiloAddress> = entries()
            .filter(|entry| picture.seems_stale(entry))
            .map(|entry| entry.address)
            .collect();
        let undecodable: Vec<Value> = picture
            .snapshot
            .rows
            .undecodable()
            .map(|row| object!({"key": row.key(), "why": row.undecodable()}))
            .collect();
        let rest = object!({
            "summary": picture.summary(),
            "table_id": row.table_id,
            "version": row.version,
            "digest": digest,
            "layout": row.layout,
            "leader": view.leader().map(|e| e.address),
            "settings": row.settings,
            "cluster_keys": keys.len(),
            "rotation_unfinished": keys.are_in_rotation(),
            "recent": row.recent,
            "undecodable": undecodable,
            "heartbeats": picture.heartbeats.as_ref().map(|beats| &beats.silos),
            "stale": stale,
            "attention": self.attention(&picture),
        });
        if let Value::Object(rest) = rest {
            fields.extend(rest);
        }
        if has == Some(digest.as_str()) {
            return json(&head);
        }
        let key = (row.table_id.get(), row.version, view.digest());
        json_with(&text_of(&head), "members", self.members(key, &picture))
    }

    fn members(&self, key: Digest, picture: &Picture) -> Bytes {
        let mut known = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((last, text)) = &*known
            && *last == key
        {
            return text.clone();
        }
        let rows = picture.snapshot.rows.entries();
        let text = text_of(&rows.map(model::member).collect::<Vec<_>>());
        *known = Some((key, text.clone()));
        text
    }
}

fn reach(reach: &Reach) -> Value {
    let partial: Vec<Value> = reach
        .partial
        .iter()
        .map(|(silo, unreached)| object!({"silo": silo, "unreached": unreached}))
        .collect();
    object!({"asked": reach.asked, "answered": reach.answered, "partial": partial})
}
