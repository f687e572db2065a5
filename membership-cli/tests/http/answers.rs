//! Every answer is what the OpenAPI document says, also where names are hostile.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::{Answer, Stream, address, ask, get, has, request};
use super::support::silos::{Cluster, Process, port};

/// The document, with the schema of an answer.
struct Document(Value);

impl Document {
    fn of(at: std::net::SocketAddr) -> Self {
        let document = get(at, "/api/v1/openapi.json").json(200);
        assert_eq!(document["openapi"], "3.1.0");
        Self(document)
    }

    fn validator(&self, schema: Value) -> jsonschema::Validator {
        let mut whole = self.0.clone();
        whole["$ref"] = schema["$ref"].clone();
        if whole["$ref"].is_null() {
            return jsonschema::validator_for(&schema).unwrap();
        }
        jsonschema::validator_for(&whole).unwrap()
    }

    /// The answer to a path of the document is as it says.
    #[track_caller]
    fn check(&self, path: &str, answer: &Answer) -> Value {
        let status = answer.status.to_string();
        let kind = answer.header("content-type").unwrap();
        let response = &self.0["paths"][path]["get"]["responses"][&status];
        assert!(
            response.is_object(),
            "{path} {status} is not in the document"
        );
        let schema = &response["content"][kind]["schema"];
        assert!(
            schema.is_object(),
            "{path} {status} {kind} is not in the document"
        );
        let value: Value = serde_json::from_str(&answer.body).unwrap();
        self.conforms(schema.clone(), &value, path);
        value
    }

    #[track_caller]
    fn conforms(&self, schema: Value, value: &Value, what: &str) {
        let validator = self.validator(schema);
        let wrong: Vec<String> = validator
            .iter_errors(value)
            .map(|e| e.to_string())
            .collect();
        assert!(wrong.is_empty(), "{what}: {wrong:#?} in {value:#}");
    }
}

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'&\n\u{2028}\u{202e}\u{1b}[31m";

#[test]
fn answers_and_events_are_as_the_document_says() {
    let mut cluster = Cluster::started(2, "local");
    let more = [
        "--http",
        "127.0.0.1:0",
        "--name",
        HOSTILE,
        "--role",
        HOSTILE,
        "--zone",
        "z<1>",
        "--metadata",
        "<k>=</script>",
        "--gateway-port",
        "30000",
    ];
    let silo = Process::start(&cluster.place, port(), "local", &more);
    cluster.silos.push(silo);
    cluster.all_active(Duration::from_secs(30));
    let at = address(&cluster.silos[2]);
    let me = cluster.address(2);
    let document = Document::of(at);

    let answer = get(at, "/api/v1/view");
    let view = document.check("/api/v1/view", &answer);
    for markup in ["<", ">", "&", "\u{2028}", "\u{1b}"] {
        assert!(
            !answer.body.contains(markup),
            "{markup:?} in {}",
            answer.body
        );
    }
    let members = view["members"].as_array().unwrap();
    let mine = members.iter().find(|m| m["silo"] == me).unwrap();
    assert_eq!(mine["silo_name"], HOSTILE);
    assert_eq!(mine["metadata"], json!({"<k>": "</script>"}));
    let policy = answer.header("content-security-policy").unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));

    let tag = answer.header("etag").unwrap().to_owned();
    assert!(tag.starts_with(&format!("\"{}-", view["version"])), "{tag}");
    let same = request("GET", "/api/v1/view", &[("If-None-Match", &tag)], "");
    let same = ask(at, &same);
    assert_eq!((same.status, same.body.as_str()), (304, ""));

    let owner = document.check("/api/v1/owner", &get(at, "/api/v1/owner?key=a%2Fb"));
    assert_eq!(
        (&owner["key"], owner["owner"].is_string()),
        (&json!("a/b"), true)
    );
    let of_zone = document.check(
        "/api/v1/owner",
        &get(at, "/api/v1/owner?key=a&zone=z%3C1%3E"),
    );
    assert_eq!(of_zone["owner"], me);
    let nobody = document.check("/api/v1/owner", &get(at, "/api/v1/owner?key=a&role=none"));
    assert_eq!(nobody["owner"], Value::Null);
    let health = document.check("/api/v1/health", &get(at, "/api/v1/health"));
    assert_eq!(
        (&health["live"], &health["status"]),
        (&json!(true), &json!("Active"))
    );
    document.check("/api/v1/history", &get(at, "/api/v1/history"));
    let later = document.check(
        "/api/v1/history",
        &get(at, "/api/v1/history?since=9999-01-01T00:00:00Z"),
    );
    assert_eq!(later["events"], json!([]));
    let why = document.check("/api/v1/why/{silo}", &get(at, &format!("/api/v1/why/{me}")));
    assert_eq!((&why["silo"], &why["death"]), (&json!(me), &Value::Null));
    document.check("/api/v1/why/{silo}", &get(at, "/api/v1/why/nobody"));
    let state = document.check("/api/v1/status", &get(at, "/api/v1/status?wait=0"));
    assert_eq!(state["members"].as_array().map(Vec::len), Some(3));
    assert_eq!(state["silo"], me);
    let (have, path) = (&state["digest"], "/api/v1/status");
    let have = have.as_str().unwrap();
    let rest = document.check(path, &get(at, &format!("{path}?have={have}")));
    assert!(rest.get("members").is_none(), "{rest:#}");
    let path = "/api/v1/about/{silo}";
    let about = document.check(path, &get(at, &format!("/api/v1/about/{me}")));
    assert_eq!(about["member"]["silo_name"], HOSTILE);
    document.check(path, &get(at, "/api/v1/about/nobody"));
    for path in [
        "/api/v1/view?wait=x",
        "/api/v1/status?wait=x",
        "/api/v1/view?wait=1&wait=2",
        "/api/v1/view?timeout=soon",
        "/api/v1/view?colour=red",
        "/api/v1/owner",
        "/api/v1/history?since=yesterday",
    ] {
        let (name, _) = path.split_once('?').unwrap_or((path, ""));
        let answer = get(at, path);
        let error = document.check(name, &answer);
        assert_eq!(
            (answer.status, &error["error"]),
            (400, &json!("bad_request")),
            "{path}"
        );
    }
    assert_eq!(get(at, "/none").json(404)["error"], "not_found");
    assert_eq!(
        ask(at, &request("DELETE", "/api/v1/view", &[], "")).status,
        405
    );

    // A stream, with a death of which the others vote.
    let mut stream = Stream::open(at, None);
    let victim = cluster.address(0);
    cluster.silos[0].signal(Signal::KILL);
    let events = stream.until("a death", |e| has(e, &victim, "Dead"));
    assert_eq!(events[0].name, "view");
    for event in &events {
        let schema = json!({"$ref": format!("#/components/schemas/event.{}", event.name)});
        document.conforms(schema, &event.data, &event.name);
    }
    let why = document.check(
        "/api/v1/why/{silo}",
        &get(at, &format!("/api/v1/why/{victim}")),
    );
    assert_eq!(why["cause"], "voted");
    let about = get(at, &format!("/api/v1/about/{victim}"));
    let about = document.check("/api/v1/about/{silo}", &about);
    assert!(
        about["headline"]
            .as_str()
            .unwrap()
            .ends_with("is Dead, voted")
    );
    document.check("/api/v1/status", &get(at, "/api/v1/status"));
    // A dashboard has the same answers, with heartbeats.
    let dashboard = ["dashboard", "--json", "--http", "127.0.0.1:0"];
    let dashboard = Process::spawn(cluster.place.command(&dashboard), 0);
    let of_table = get(address(&dashboard), "/api/v1/status?wait=0");
    let of_table = document.check("/api/v1/status", &of_table);
    assert!(of_table["heartbeats"].is_object(), "{of_table:#}");
    let history = document.check("/api/v1/history", &get(at, "/api/v1/history?since=1h"));
    let mut happened = history["events"].as_array().unwrap().iter();
    assert!(happened.any(|e| e["event"] == "dead" && e["silo"] == victim && e["cause"] == "voted"));
}

#[test]
fn a_request_waits_for_a_newer_view_and_no_longer() {
    let mut cluster = Cluster::start(0, "local");
    let http = ["--http", "127.0.0.1:0"];
    let silo = Process::start(&cluster.place, port(), "local", &http);
    silo.address(Duration::from_secs(30));
    let at = address(&silo);
    cluster.silos.push(silo);
    let version = get(at, "/api/v1/view").json(200)["version"]
        .as_u64()
        .unwrap();
    let began = std::time::Instant::now();
    let same = get(at, &format!("/api/v1/view?wait={version}&timeout=300ms")).json(200);
    assert_eq!(same["version"], version);
    assert!(began.elapsed() >= Duration::from_millis(300));
    let waiting = std::thread::spawn(move || {
        get(at, &format!("/api/v1/view?wait={version}&timeout=60s")).json(200)
    });
    cluster.join(Duration::from_secs(30));
    let newer = waiting.join().unwrap();
    assert!(newer["version"].as_u64().unwrap() > version);
    assert_eq!(get(at, "/livez").body, "live\n");
    assert_eq!(get(at, "/readyz").body, "ready\n");
}

#[test]
fn a_silo_that_joins_is_live_and_not_ready() {
    let cluster = Cluster::started(1, "lan");
    // It cannot join while the other one does not answer.
    cluster.silos[0].signal(Signal::STOP);
    let joining = Process::start(&cluster.place, port(), "lan", &["--http", "127.0.0.1:0"]);
    let at = address(&joining);
    assert_eq!(
        (get(at, "/livez").status, get(at, "/readyz").status),
        (200, 503)
    );
    assert_eq!(get(at, "/api/v1/view").json(503)["error"], "joining");
    cluster.silos[0].signal(Signal::CONT);
}
