//! Requests and answers of etcd's JSON gateway. Bytes are base64; absent fields are zero, empty or
//! false.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The paths of requests.
pub(crate) const TXN: &str = "/v3/kv/txn";
pub(crate) const PUT: &str = "/v3/kv/put";
pub(crate) const RANGE: &str = "/v3/kv/range";
pub(crate) const DELETE: &str = "/v3/kv/deleterange";
pub(crate) const WATCH: &str = "/v3/watch";
pub(crate) const AUTHENTICATE: &str = "/v3/auth/authenticate";

/// A key or a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes(Vec<u8>);

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// As text. What is not UTF-8 is kept, and cannot be decoded (clause T12).
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for Bytes {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        STANDARD
            .decode(text.as_bytes())
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// A transaction: the first list of operations if every comparison holds, else the second.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Txn {
    pub(crate) compare: Vec<Compare>,
    pub(crate) success: Vec<Op>,
    pub(crate) failure: Vec<Op>,
}

impl Txn {
    /// How many operations etcd counts.
    pub(crate) fn operations(&self) -> usize {
        self.compare
            .len()
            .max(self.success.len())
            .max(self.failure.len())
    }

    /// An upper bound of its bytes within etcd.
    pub(crate) fn bytes(&self) -> usize {
        let compared: usize = self
            .compare
            .iter()
            .map(|c| c.key.len() + c.range_end.as_ref().map_or(0, Bytes::len) + c.value_len())
            .sum();
        let asked: usize = self.success.iter().chain(&self.failure).map(Op::len).sum();
        compared + asked + 64 * (self.compare.len() + self.success.len() + self.failure.len() + 1)
    }
}

/// A comparison of a key, or of every key of a range.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Compare {
    key: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<Bytes>,
    result: &'static str,
    target: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    create_revision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mod_revision: Option<String>,
}

impl Compare {
    fn new(key: Bytes, result: &'static str, target: &'static str) -> Self {
        Self {
            key,
            range_end: None,
            result,
            target,
            value: None,
            create_revision: None,
            mod_revision: None,
        }
    }

    /// The key has this value.
    pub(crate) fn is(key: Bytes, value: Bytes) -> Self {
        Self {
            value: Some(value),
            ..Self::new(key, "EQUAL", "VALUE")
        }
    }

    /// The key exists.
    pub(crate) fn exists(key: Bytes) -> Self {
        Self {
            create_revision: Some("0"),
            ..Self::new(key, "GREATER", "CREATE")
        }
    }

    /// The key does not exist.
    pub(crate) fn is_absent(key: Bytes) -> Self {
        Self {
            create_revision: Some("0"),
            ..Self::new(key, "EQUAL", "CREATE")
        }
    }

    /// No key of the range exists.
    pub(crate) fn are_absent((key, end): (Bytes, Bytes)) -> Self {
        Self {
            range_end: Some(end),
            ..Self::is_absent(key)
        }
    }

    /// The key was last changed at this revision; 0 for a key that does not exist.
    pub(crate) fn is_of(key: Bytes, revision: i64) -> Self {
        Self {
            mod_revision: Some(revision.to_string()),
            ..Self::new(key, "EQUAL", "MOD")
        }
    }

    fn value_len(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// One operation of a transaction.
#[derive(Clone, Debug, Serialize)]
pub(crate) enum Op {
    #[serde(rename = "request_range")]
    Range(Range),
    #[serde(rename = "request_put")]
    Put(Put),
    #[serde(rename = "request_delete_range")]
    DeleteRange(Range),
}

impl Op {
    pub(crate) fn get(key: Bytes) -> Self {
        Self::Range(Range::one(key))
    }

    pub(crate) fn range(range: (Bytes, Bytes)) -> Self {
        Self::Range(Range::of(range))
    }

    /// The first key of a range, without its value.
    pub(crate) fn first(range: (Bytes, Bytes)) -> Self {
        Self::Range(Range {
            limit: Some("1"),
            keys_only: true,
            ..Range::of(range)
        })
    }

    /// Whether the key exists; without its value.
    pub(crate) fn key(key: Bytes) -> Self {
        Self::Range(Range {
            keys_only: true,
            ..Range::one(key)
        })
    }

    pub(crate) fn put(key: Bytes, value: impl Into<Bytes>) -> Self {
        Self::Put(Put {
            key,
            value: value.into(),
        })
    }

    pub(crate) fn delete(key: Bytes) -> Self {
        Self::DeleteRange(Range::one(key))
    }

    pub(crate) fn delete_all(range: (Bytes, Bytes)) -> Self {
        Self::DeleteRange(Range::of(range))
    }

    fn len(&self) -> usize {
        match self {
            Self::Range(range) | Self::DeleteRange(range) => {
                range.key.len() + range.range_end.as_ref().map_or(0, Bytes::len)
            }
            Self::Put(put) => put.key.len() + put.value.len(),
        }
    }
}

/// One key, or all up to another one.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Range {
    pub(crate) key: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range_end: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keys_only: bool,
    /// Whether any member may answer from its own data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) serializable: bool,
}

impl Range {
    pub(crate) fn one(key: Bytes) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    fn of((key, end): (Bytes, Bytes)) -> Self {
        Self {
            key,
            range_end: Some(end),
            ..Self::default()
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Put {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
}

/// The header of every answer. An answer without it is not etcd's: an empty object is neither an
/// empty table nor a success.
#[derive(Debug, Deserialize)]
pub(crate) struct Header {
    /// The store's revision; what a transaction writes has it too.
    #[serde(deserialize_with = "number")]
    pub(crate) revision: i64,
}

/// The answer to a transaction.
#[derive(Debug, Deserialize)]
pub(crate) struct TxnAnswer {
    pub(crate) header: Header,
    /// Whether every comparison held.
    #[serde(default)]
    pub(crate) succeeded: bool,
    #[serde(default)]
    responses: Vec<OpAnswer>,
}

/// The answer to one operation.
#[derive(Debug, Deserialize)]
enum OpAnswer {
    #[serde(rename = "response_range")]
    Range(Found),
    #[serde(rename = "response_put")]
    Put(IgnoredAny),
    #[serde(rename = "response_delete_range")]
    DeleteRange(IgnoredAny),
}

#[derive(Debug, Deserialize)]
struct Found {
    #[serde(default)]
    kvs: Vec<Pair>,
    /// How many keys the range has.
    #[serde(default, deserialize_with = "number")]
    count: i64,
}

impl TxnAnswer {
    /// Whether it answers these operations, and lacks nothing.
    pub(crate) fn is_of(&self, operations: &[Op]) -> bool {
        let answers = |(answer, asked): (&OpAnswer, &Op)| match (answer, asked) {
            (OpAnswer::Range(found), Op::Range(_)) => !found.kvs.is_empty() || found.count == 0,
            (OpAnswer::Put(_), Op::Put(_)) => true,
            (OpAnswer::DeleteRange(_), Op::DeleteRange(_)) => true,
            _ => false,
        };
        let same = self.responses.len() == operations.len();
        same && self.responses.iter().zip(operations).all(answers)
    }

    /// The result of each range, in order.
    pub(crate) fn ranges(self) -> impl Iterator<Item = Vec<Pair>> {
        self.responses.into_iter().map(|answer| match answer {
            OpAnswer::Range(found) => found.kvs,
            OpAnswer::Put(_) | OpAnswer::DeleteRange(_) => Vec::new(),
        })
    }
}

/// An answer whose content does not matter.
#[derive(Debug, Deserialize)]
pub(crate) struct Done {
    #[serde(rename = "header")]
    _header: Header,
}

/// A key with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Pair {
    pub(crate) key: Bytes,
    /// An empty one is left out.
    #[serde(default)]
    pub(crate) value: Bytes,
    /// The revision that last changed it.
    #[serde(deserialize_with = "number")]
    pub(crate) mod_revision: i64,
}

/// An event whose content does not matter.
#[derive(Debug, Deserialize)]
pub(crate) struct Event {}

/// 64-bit numbers are texts.
fn number<'de, D: Deserializer<'de>>(d: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Number(i64),
    }
    match Written::deserialize(d)? {
        Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        Written::Number(number) => Ok(number),
    }
}

#[derive(Serialize)]
pub(crate) struct Authenticate<'a> {
    pub(crate) name: &'a str,
    pub(crate) password: &'a str,
}

#[derive(Deserialize)]
pub(crate) struct Authenticated {
    pub(crate) token: String,
}

/// The request of a watch.
#[derive(Debug, Serialize)]
pub(crate) struct Watch {
    pub(crate) create_request: Range,
}

/// One line of a watch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchLine {
    pub(crate) result: Option<Watched>,
    pub(crate) error: Option<Refused>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Watched {
    /// It has begun.
    pub(crate) created: bool,
    /// It has ended. There may be a reason.
    pub(crate) canceled: bool,
    pub(crate) cancel_reason: String,
    pub(crate) events: Vec<Event>,
}

/// A refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Refused {
    /// gRPC's code.
    #[serde(alias = "grpc_code")]
    pub(crate) code: u32,
    #[serde(alias = "error")]
    text: String,
    message: String,
}

impl Refused {
    #[cfg(test)]
    pub(crate) fn new(code: u32, message: &str) -> Self {
        Self {
            code,
            text: String::new(),
            message: message.to_owned(),
        }
    }

    pub(crate) fn message(&self) -> &str {
        if self.message.is_empty() {
            &self.text
        } else {
            &self.message
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_gateways_format() {
        let mut txn = Txn::default();
        txn.compare.push(Compare::is("a".into(), "1".into()));
        txn.compare
            .push(Compare::are_absent(("r/".into(), "r0".into())));
        txn.compare.push(Compare::is_of("a".into(), 7));
        txn.success.push(Op::put("a".into(), "2"));
        txn.success.push(Op::delete("b".into()));
        txn.failure.push(Op::first(("r/".into(), "r0".into())));
        let json: serde_json::Value = serde_json::to_value(&txn).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "compare": [
                    {"key": "YQ==", "target": "VALUE", "result": "EQUAL", "value": "MQ=="},
                    {"key": "ci8=", "range_end": "cjA=", "target": "CREATE", "result": "EQUAL", "create_revision": "0"},
                    {"key": "YQ==", "target": "MOD", "result": "EQUAL", "mod_revision": "7"},
                ],
                "success": [{"request_put": {"key": "YQ==", "value": "Mg=="}}, {"request_delete_range": {"key": "Yg=="}}],
                "failure": [{"request_range": {"key": "ci8=", "range_end": "cjA=", "limit": "1", "keys_only": true}}],
            })
        );
        assert_eq!(txn.operations(), 3);
        assert!(txn.bytes() > 400);
    }

    #[test]
    fn fields_that_an_answer_leaves_out_are_read() {
        let text = r#"{"header":{"revision":"9"},"responses":[{"response_range":{"kvs":[
            {"key":"YQ==","create_revision":"2","mod_revision":"9","version":"1"},{"key":"Yg==","mod_revision":8,"value":"/w=="}],"count":"2"}},
            {"response_put":{}},{"response_range":{}}]}"#;
        let answer: TxnAnswer = serde_json::from_str(text).unwrap();
        assert_eq!((answer.succeeded, answer.header.revision), (false, 9));
        let asked = [
            Op::get("a".into()),
            Op::put("b".into(), "c"),
            Op::key("b".into()),
        ];
        assert!(answer.is_of(&asked) && !answer.is_of(&asked[..2]));
        let ranges: Vec<Vec<Pair>> = answer.ranges().collect();
        let keys: Vec<(String, String, i64)> = ranges[0]
            .iter()
            .map(|p| (p.key.text(), p.value.text(), p.mod_revision))
            .collect();
        assert_eq!(
            keys,
            [
                ("a".to_owned(), String::new(), 9),
                ("b".to_owned(), "\u{fffd}".to_owned(), 8)
            ]
        );
        assert!(ranges[1].is_empty() && ranges[2].is_empty());
        assert!(
            serde_json::from_str::<TxnAnswer>(r#"{"header":{"revision":"3"},"succeeded":true}"#)
                .unwrap()
                .succeeded
        );
        for nonsense in [
            r#"{"header":{"revision":"3"},"responses":[{"response_range":{"kvs":[{"key":"%"}]}}]}"#,
            r#"{"header":{"revision":"3"},"responses":7}"#,
            r#"{"header":{"revision":"3"},"responses":[{}]}"#,
            r#"{"header":{},"succeeded":true}"#,
            r#"{"succeeded":true}"#,
            "{}",
            "[]7",
            "null",
        ] {
            assert!(
                serde_json::from_str::<TxnAnswer>(nonsense).is_err(),
                "{nonsense}"
            );
        }
        assert!(
            serde_json::from_str::<Done>(
                r#"{"header":{"cluster_id":"1","revision":"3","raft_term":"2"},"count":"0"}"#
            )
            .is_ok()
        );
        assert!(serde_json::from_str::<Done>("{}").is_err());
    }

    #[test]
    fn refusals_of_each_version_are_read() {
        for text in [
            r#"{"error":"etcdserver: no leader","code":14}"#,
            r#"{"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14}"#,
            r#"{"code":14,"message":"etcdserver: no leader","details":[]}"#,
            r#"{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader","http_status":"Service Unavailable"}"#,
        ] {
            let refused: Refused = serde_json::from_str(text).unwrap();
            assert_eq!(
                (refused.code, refused.message()),
                (14, "etcdserver: no leader"),
                "{text}"
            );
        }
    }

    #[test]
    fn lines_of_a_watch_are_read() {
        let read = |text: &str| serde_json::from_str::<WatchLine>(text).unwrap();
        assert!(
            read(r#"{"result":{"header":{"revision":"2"},"created":true}}"#)
                .result
                .unwrap()
                .created
        );
        let event = read(r#"{"result":{"header":{},"events":[{"kv":{"key":"YQ=="}},{"type":"DELETE","kv":{}}]}}"#).result.unwrap();
        assert_eq!(event.events.len(), 2);
        let ended =
            read(r#"{"result":{"canceled":true,"compact_revision":"7","cancel_reason":"why"}}"#)
                .result
                .unwrap();
        assert!(ended.canceled && ended.cancel_reason == "why");
        assert_eq!(
            read(r#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#)
                .error
                .unwrap()
                .code,
            14
        );
    }
}
