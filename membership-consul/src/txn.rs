//! Transactions: operations that happen together or not at all. Clauses T2 to T4.

use membership_core::{TableError, TableErrorKind};
use membership_provider::json;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::client::{Client, Request};
use crate::codec::{Pair, encoded};
use crate::error::{denied, error, is_about_permissions, shorten, wrong};

/// What servers of every version accept; since 1.12 they accept 128.
pub(crate) const MAX_OPERATIONS: usize = 64;
/// The largest transaction that servers accept with default settings, in bytes.
pub(crate) const MAX_BYTES: usize = 512 * 1024;

/// One operation.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Verb {
    verb: &'static str,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "UPPERCASE")]
struct Op {
    kv: Verb,
}

/// A transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Txn(Vec<Op>);

impl Txn {
    fn with(
        mut self,
        verb: &'static str,
        key: String,
        value: Option<&str>,
        index: Option<u64>,
    ) -> Self {
        self.0.push(Op {
            kv: Verb {
                verb,
                key,
                value: value.map(encoded),
                index,
            },
        });
        self
    }

    /// Only if this key exists.
    pub(crate) fn exists(self, key: String) -> Self {
        self.with("get", key, None, None)
    }

    /// Only if this key was last written at this index.
    pub(crate) fn unchanged(self, key: String, index: u64) -> Self {
        self.with("check-index", key, None, Some(index))
    }

    /// Creates this key, only if it does not exist.
    pub(crate) fn create(self, key: String, text: &str) -> Self {
        self.replace(key, text, 0)
    }

    /// Writes this key, only if it was last written at this index; 0 means never.
    pub(crate) fn replace(self, key: String, text: &str, index: u64) -> Self {
        self.with("cas", key, Some(text), Some(index))
    }

    /// Writes this key.
    pub(crate) fn put(self, key: String, text: &str) -> Self {
        self.with("set", key, Some(text), None)
    }

    /// Removes this key, if it exists.
    pub(crate) fn remove(self, key: String) -> Self {
        self.with("delete", key, None, None)
    }

    /// Removes all keys that begin with `folder`.
    pub(crate) fn remove_tree(self, folder: String) -> Self {
        self.with("delete-tree", folder, None, None)
    }

    /// Reads all keys that begin with `folder`.
    pub(crate) fn tree(self, folder: String) -> Self {
        self.with("get-tree", folder, None, None)
    }
}

/// The outcome of a transaction.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It happened; what its operations read.
    Done(Vec<Pair>),
    /// It did not happen, for this reason.
    Refused(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Results {
    /// Consul always sends it, also as `null` or `[]`. An answer without it is not Consul's.
    #[serde(deserialize_with = "Option::deserialize")]
    results: Option<Vec<One>>,
    #[serde(default)]
    errors: Option<Vec<Failed>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
struct One {
    kv: Option<Pair>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failed {
    #[serde(default)]
    what: String,
}

impl Client {
    /// Sends a transaction that writes.
    ///
    /// # Errors
    /// The error that the servers return; `PermissionDenied` too, which looks like a condition that
    /// failed; `LimitExceeded` before anything is sent.
    pub(crate) async fn write(&self, txn: &Txn, by: Instant) -> Result<Outcome, TableError> {
        self.transact(txn, "/v1/txn", true, by).await
    }

    /// Sends a transaction that only reads: one moment of a leader that checks that it still leads.
    ///
    /// # Errors
    /// The error that the servers return.
    pub(crate) async fn read(&self, txn: &Txn, by: Instant) -> Result<Vec<Pair>, TableError> {
        match self.transact(txn, "/v1/txn?consistent=", false, by).await? {
            Outcome::Done(pairs) => Ok(pairs),
            Outcome::Refused(why) => Err(error(
                TableErrorKind::Unavailable,
                format!("the servers refuse the read ({why})"),
            )
            .at(self.at())),
        }
    }

    async fn transact(
        &self,
        txn: &Txn,
        path: &str,
        writes: bool,
        by: Instant,
    ) -> Result<Outcome, TableError> {
        let body = json(&txn.0);
        if body.len() > MAX_BYTES || txn.0.len() > MAX_OPERATIONS {
            let (bytes, operations) = (body.len(), txn.0.len());
            let message = format!(
                "the transaction has {bytes} bytes and {operations} operations, Consul accepts {MAX_BYTES} and {MAX_OPERATIONS}"
            );
            return Err(error(TableErrorKind::LimitExceeded, message));
        }
        let request = Request {
            method: Method::PUT,
            path: path.to_owned(),
            body: Some(body),
            writes,
        };
        let answer = self.ask(&request, &[200, 409], by).await?;
        let parsed: Result<Results, _> = serde_json::from_slice(&answer.body);
        let parsed = parsed.map(|both| Results {
            errors: both.errors.filter(|errors| !errors.is_empty()),
            ..both
        });
        match (answer.status, parsed) {
            // Each transaction here that writes has a condition or a value, for which Consul sends
            // a result.
            (
                200,
                Ok(Results {
                    results,
                    errors: None,
                }),
            ) if !writes || results.as_ref().is_some_and(|all| !all.is_empty()) => {
                Ok(Outcome::Done(
                    results
                        .unwrap_or_default()
                        .into_iter()
                        .filter_map(|one| one.kv)
                        .collect(),
                ))
            }
            (
                409,
                Ok(Results {
                    errors: Some(errors),
                    ..
                }),
            ) => {
                let what: Vec<&str> = errors.iter().map(|failed| failed.what.as_str()).collect();
                match what.iter().find(|what| is_about_permissions(what)) {
                    Some(what) => Err(denied(what).at(self.at())),
                    None => Ok(Outcome::Refused(shorten(
                        what.first().copied().unwrap_or_default(),
                    ))),
                }
            }
            (status, _) if writes => {
                let message = format!(
                    "the server answers with the HTTP status {status}, which is not Consul's answer to a transaction"
                );
                Err(error(TableErrorKind::OutcomeUnknown, message).at(self.at()))
            }
            (status, _) => {
                let message = format!(
                    "the server answers with the HTTP status {status} and is not Consul: check the address"
                );
                Err(wrong(message).at(self.at()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_has_consuls_format() {
        let txn = Txn::default()
            .exists("a".to_owned())
            .create("b".to_owned(), "x")
            .put("c".to_owned(), "")
            .remove("d".to_owned());
        let txn = txn.remove_tree("e/".to_owned()).tree("f/".to_owned());
        assert_eq!(
            serde_json::to_string(&txn.0).unwrap(),
            "[{\"KV\":{\"Verb\":\"get\",\"Key\":\"a\"}},{\"KV\":{\"Verb\":\"cas\",\"Key\":\"b\",\"Value\":\"eA==\",\"Index\":0}},\
             {\"KV\":{\"Verb\":\"set\",\"Key\":\"c\",\"Value\":\"\"}},{\"KV\":{\"Verb\":\"delete\",\"Key\":\"d\"}},\
             {\"KV\":{\"Verb\":\"delete-tree\",\"Key\":\"e/\"}},{\"KV\":{\"Verb\":\"get-tree\",\"Key\":\"f/\"}}]"
        );
    }

    #[test]
    fn answers_are_understood() {
        let done: Results = serde_json::from_str(
            r#"{"Results":[{"KV":{"LockIndex":0,"Key":"a","Flags":0,"Value":"eA==","CreateIndex":11,"ModifyIndex":11}}],"Errors":null}"#,
        )
        .unwrap();
        assert_eq!(
            done.results
                .unwrap()
                .into_iter()
                .filter_map(|one| one.kv)
                .map(|pair| pair.key)
                .collect::<Vec<_>>(),
            ["a"]
        );
        let refused: Results = serde_json::from_str(
            r#"{"Results":null,"Errors":[{"OpIndex":0,"What":"key \"nope\" doesn't exist"}]}"#,
        )
        .unwrap();
        assert_eq!(
            refused.errors.unwrap()[0].what,
            "key \"nope\" doesn't exist"
        );
        assert!(
            serde_json::from_str::<Results>(r#"{"Results":null,"Errors":null}"#)
                .unwrap()
                .results
                .is_none()
        );
        for foreign in [
            "{}",
            r#"{"Errors":null}"#,
            r#"{"status":"ok"}"#,
            "null",
            "[]",
        ] {
            assert!(
                serde_json::from_str::<Results>(foreign).is_err(),
                "{foreign}"
            );
        }
    }
}
