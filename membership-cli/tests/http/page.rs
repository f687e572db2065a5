//! `membership dashboard`: what the page is made of, and changes that nobody else can make.

use std::net::SocketAddr;

use membership_core::SiloStatus;
use serde_json::{Value, json};

use super::client::{Answer, address, ask, get};
use super::support::silos::Process;
use super::support::{Place, active, now, silo, voted_out};

pub fn dashboard(place: &Place, more: &[&str]) -> (Process, SocketAddr) {
    let mut args = vec!["dashboard", "--json", "--http", "127.0.0.1:0"];
    args.extend(more);
    let process = Process::spawn(place.command(&args), 0);
    let at = address(&process);
    (process, at)
}

/// The state, once the table has been read.
pub fn state(at: SocketAddr) -> Value {
    get(at, "/api/v1/status?wait=0").json(200)
}

#[test]
fn a_dashboard_shows_a_table_and_what_changes() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7101), voted_out(7102, [7101, 7103])]);
    place.beat(&table, silo(7101), 5, now());
    let (_dashboard, at) = dashboard(&place, &[]);
    let first = state(at);
    assert_eq!(first["cluster"], "default/default");
    assert_eq!(first["members"].as_array().unwrap().len(), 2);
    assert_eq!(first["heartbeats"][silo(7101).to_string()]["counter"], 5);
    assert_eq!(first["table"]["state"], "available");
    assert_eq!(
        (&first["may_change"], &first["change_token"]),
        (&json!(false), &json!(null))
    );
    // A client that has the rows gets what else there is.
    let (revision, digest) = (&first["revision"], first["digest"].as_str().unwrap());
    let path = format!("/api/v1/status?wait={revision}&have={digest}&timeout=30s");
    let waiting = std::thread::spawn(move || get(at, &path).json(200));
    place.insert(&table, vec![active(7103)]);
    let mut newer = waiting.join().unwrap();
    while newer["version"] == first["version"] {
        assert!(newer.get("members").is_none(), "{newer:#}");
        let path = format!("/api/v1/status?wait={}&have={digest}", newer["revision"]);
        newer = get(at, &path).json(200);
    }
    assert_eq!(newer["members"].as_array().unwrap().len(), 3);
    let happened = newer["timeline"].as_array().unwrap();
    let is_it = |one: &&Value| one["silo"] == json!(silo(7103)) && one["what"] == "active";
    assert!(happened.iter().any(|one| is_it(&one)), "{happened:#?}");

    let about = get(at, &format!("/api/v1/about/{}", silo(7102))).json(200);
    assert!(
        about["headline"]
            .as_str()
            .unwrap()
            .ends_with("is Dead, voted")
    );
    let about = get(at, &format!("/api/v1/about/{}", silo(7101))).json(200);
    assert_eq!(
        (&about["probes"], &about["probed_by"]),
        (&json!([silo(7103)]), &json!([silo(7103)]))
    );
    assert_eq!(
        get(at, "/api/v1/about/nobody").json(404)["error"],
        "not_found"
    );
    assert_eq!(get(at, "/?cluster=other").json(404)["error"], "not_found");
}

#[test]
fn the_page_is_text_of_others_as_text_and_asks_nobody_else() {
    let place = Place::new();
    let table = place.initialize();
    let mut entry = active(7101);
    entry.info.silo_name = "<script>alert(1)</script><!-- rows -->".to_owned();
    entry.info.zone = "\" onload=\"alert(1)".to_owned();
    place.insert(&table, vec![entry]);
    let (_dashboard, at) = dashboard(&place, &[]);
    state(at);
    for path in ["/", "/silo/127.0.0.1:7101"] {
        let page = get(at, path);
        assert_eq!(page.status, 200, "{page:?}");
        assert!(
            !page.body.contains("<script>") && !page.body.contains("\" onload"),
            "{}",
            page.body
        );
        assert!(
            page.body.contains("&lt;script&gt;alert(1)"),
            "{}",
            page.body
        );
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        assert!(
            !policy.contains("unsafe") && !page.body.contains("http://"),
            "{policy}"
        );
    }
    for (path, kind) in [
        ("/page/page.js", "text/javascript; charset=utf-8"),
        ("/page/page.css", "text/css; charset=utf-8"),
        ("/page/icon.svg", "image/svg+xml"),
    ] {
        let part = get(at, path);
        assert_eq!(
            (part.status, part.header("content-type")),
            (200, Some(kind)),
            "{path}"
        );
    }
    assert_eq!(get(at, "/page/../Cargo.toml").status, 404);
}

/// A change as the page sends it, with these headers in place of its own; an empty one is left out.
fn send(at: SocketAddr, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let body = body.to_string();
    let mut text = format!(
        "POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    ask(at, &format!("{text}\r\n{body}"))
}

#[test]
fn a_forged_request_changes_nothing_and_the_page_does() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7101), active(7102)]);
    let (_dashboard, at) = dashboard(&place, &["--allow-changes"]);
    state(at);
    let page = get(at, "/");
    let cookie = page.header("set-cookie").unwrap().to_owned();
    assert!(cookie.contains("httponly; samesite=strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let with = |cookie: &str| {
        let text = format!(
            "GET /api/v1/status HTTP/1.1\r\nHost: {at}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        );
        ask(at, &text).json(200)["change_token"].clone()
    };
    let token = with(&cookie).as_str().unwrap().to_owned();
    let other = format!("membership-page={}", "a".repeat(64));
    let token_of_other = with(&other).as_str().unwrap().to_owned();
    assert_ne!(token, token_of_other);
    assert_eq!(
        get(at, "/api/v1/status").json(200)["change_token"],
        json!(null)
    );

    let host = at.to_string();
    let origin = format!("http://{at}");
    let right = [
        ("Host", host.as_str()),
        ("Origin", origin.as_str()),
        ("Sec-Fetch-Site", "same-origin"),
        ("Content-Type", "application/json"),
        ("Cookie", cookie.as_str()),
        ("Membership-Token", token.as_str()),
    ];
    let evict = json!({"cluster": "default/default", "silo": silo(7101), "reason": "its disk"});
    let cleanup = json!({"cluster": "default/default"});
    for (name, value) in [
        ("Origin", ""),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Content-Type", "text/plain"),
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Cookie", ""),
        ("Cookie", other.as_str()),
        ("Membership-Token", ""),
        ("Membership-Token", token_of_other.as_str()),
    ] {
        let forged = right.map(|(n, v)| (n, if n == name { value } else { v }));
        for (path, body) in [("/act/evict", &evict), ("/act/cleanup", &cleanup)] {
            let answer = send(at, path, &forged, body);
            assert_eq!(answer.json(403)["error"], "forbidden", "{name}: {value}");
        }
    }
    let elsewhere = right.map(|(n, v)| (n, if n == "Host" { "evil.example" } else { v }));
    assert_eq!(send(at, "/act/evict", &elsewhere, &evict).status, 421);
    let status = |port| place.entry(&table, silo(port)).map(|entry| entry.status);
    assert_eq!(status(7101), Some(SiloStatus::Active));

    let about = get(at, &format!("/api/v1/about/{}", silo(7101))).json(200);
    let told = about["eviction"].as_str().unwrap();
    assert!(told.contains("for good"), "{told}");
    let done = send(at, "/act/evict", &right, &evict).json(200);
    assert_eq!(done["outcome"], "done", "{done}");
    assert_eq!(
        (status(7101), status(7102)),
        (Some(SiloStatus::Dead), Some(SiloStatus::Active))
    );
    let death = place.entry(&table, silo(7101)).unwrap().death.unwrap();
    assert!(death.cause.to_string().ends_with(": its disk"), "{death:?}");
    let again = send(at, "/act/evict", &right, &evict).json(200);
    assert_eq!(again["outcome"], "nothing_to_do", "{again}");
    let nobody = json!({"cluster": "default/default", "silo": silo(7109), "reason": "x"});
    assert_eq!(
        send(at, "/act/evict", &right, &nobody).json(409)["outcome"],
        "refused"
    );
    let without = json!({"cluster": "default/default", "silo": silo(7102), "reason": " "});
    assert_eq!(send(at, "/act/evict", &right, &without).status, 400);
    assert_eq!(get(at, "/api/v1/cleanup").json(200)["rows"], json!([]));
    assert_eq!(get(at, "/api/v1/cleanup?older_than=1s").status, 400);
    assert_eq!(
        send(at, "/act/cleanup", &right, &cleanup).json(200)["outcome"],
        "done"
    );
}

#[test]
fn several_clusters_of_one_store_are_several_pages_of_one_dashboard() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7101)]);
    let other = place.initialize_another("billing/blue");
    place.insert(&other, vec![active(7201), active(7202)]);
    let both = [
        "--cluster",
        "default",
        "--cluster",
        "billing/blue",
        "--allow-changes",
    ];
    let (_dashboard, at) = dashboard(&place, &both);
    let of = |cluster: &str| {
        let path = format!("/api/v1/status?wait=0&cluster={cluster}");
        get(at, &path).json(200)
    };
    let known = json!(["default/default", "billing/blue"]);
    for (cluster, silos) in [("default/default", 1), ("billing/blue", 2)] {
        let state = of(cluster);
        assert_eq!(
            (&state["cluster"], &state["clusters"]),
            (&json!(cluster), &known)
        );
        assert_eq!(
            state["members"].as_array().unwrap().len(),
            silos,
            "{cluster}"
        );
        let page = get(at, &format!("/?cluster={cluster}"));
        assert!(
            page.body
                .contains(&silo(if silos == 1 { 7101 } else { 7201 }).to_string())
        );
    }
    // A silo is looked for in the cluster that is named, and in no other.
    let about = |cluster: &str| {
        get(
            at,
            &format!("/api/v1/about/127.0.0.1:7201?cluster={cluster}"),
        )
    };
    assert_eq!(about("billing/blue").status, 200);
    assert_eq!(about("default/default").status, 404);
    assert_eq!(get(at, "/api/v1/status?cluster=none").status, 404);
    assert_eq!(
        state(at)["cluster"],
        "default/default",
        "the first without a name"
    );
}

#[test]
fn without_allow_changes_nothing_can_be_changed() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7101)]);
    let (_dashboard, at) = dashboard(&place, &[]);
    state(at);
    assert_eq!(get(at, "/").header("set-cookie"), None);
    let evict = json!({"cluster": "default/default", "silo": silo(7101), "reason": "x"});
    let host = at.to_string();
    let answer = send(
        at,
        "/act/evict",
        &[("Host", &host), ("Content-Type", "application/json")],
        &evict,
    );
    assert_eq!(answer.status, 404, "{answer:?}");
    let about = get(at, "/api/v1/about/127.0.0.1:7101").json(200);
    assert_eq!(about["eviction"], json!(null));
}

#[test]
fn a_dashboard_takes_the_next_free_port_and_says_what_is_wrong() {
    let place = Place::new();
    place.initialize();
    let one = Process::spawn(place.command(&["dashboard", "--json"]), 0);
    let other = Process::spawn(place.command(&["dashboard", "--json"]), 0);
    let (one, other) = (address(&one), address(&other));
    assert_ne!(one, other);
    for at in [one, other] {
        assert!(at.ip().is_loopback());
        assert_eq!(get(at, "/livez").body, "live\n");
    }
    let open = place.run(&["dashboard", "--http", "0.0.0.0:0"]).expect(2);
    assert!(open.err.contains("--http-token-file"), "{open:?}");
    let missing = Place::new().run(&["dashboard"]);
    assert_ne!(missing.code, Some(0), "{missing:?}");
}
