//! The dashboard's page over a store whose answer to a change is lost.

use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use membership_fault_proxy::{Fault, Proxy};
use membership_testbed::Kind;
use serde_json::{Value, json};

use crate::client::{Answer, address, ask, get};
use crate::scenarios::SOON;
use crate::store::Store;
use crate::support::silos::{Process, members};
use crate::support::{Place, secs};

/// How often an eviction is tried: the dashboard reads the table all the time, and a read of its own
/// may meet the fault instead.
const TRIES: usize = 20;

/// What a browser sends with a change.
struct Browser {
    at: SocketAddr,
    cookie: String,
    token: String,
}

impl Browser {
    fn new(at: SocketAddr) -> Self {
        let page = get(at, "/");
        let cookie = page.header("set-cookie").unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let status = ask(
            at,
            &format!(
                "GET /api/v1/status HTTP/1.1\r\nHost: {at}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
            ),
        );
        let token = status.json(200)["change_token"]
            .as_str()
            .unwrap()
            .to_owned();
        Self { at, cookie, token }
    }

    fn evicts(&self, cluster: &str, silo: &str) -> Answer {
        let body = json!({"cluster": cluster, "silo": silo, "reason": "its disk"}).to_string();
        let Self { at, cookie, token } = self;
        ask(
            *at,
            &format!(
                "POST /act/evict HTTP/1.1\r\nHost: {at}\r\nOrigin: http://{at}\r\nContent-Type: application/json\r\n\
                 Cookie: {cookie}\r\nMembership-Token: {token}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            ),
        )
    }
}

fn status_of(place: &Place, silo: &str) -> Value {
    let view = place.run(&["status", "--json"]).json();
    let row = members(&view).find(|row| row["silo"] == silo);
    row.map_or(Value::Null, |row| row["status"].clone())
}

/// The store carries the eviction out, its answer is lost, and then nobody reaches it: the page
/// says that it may have happened, and what to do, and not that it failed.
#[test]
fn an_eviction_whose_answer_is_lost_may_have_happened() {
    let store = Store::start(Kind::Redis);
    let direct = store.place("page");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let proxy = runtime.block_on(async { Proxy::to(store.address()).unwrap() });
    proxy.serve_other_processes();
    let through = format!("redis://{}?operation_timeout=1s", proxy.address());
    let behind = Place::at(through, direct.cluster());
    let silo = Process::start(&direct, 0, "local", &[]);
    let name = silo.address(SOON);
    let dashboard = Process::spawn(
        behind.command(&["dashboard", "--allow-changes", "--json"]),
        0,
    );
    let browser = Browser::new(address(&dashboard));

    let mut said = Vec::new();
    for _ in 0..TRIES {
        // The eviction reads the table, and commits.
        proxy.set_fault_after(1, Fault::LoseAnswer);
        let answer = thread::scope(|scope| {
            let evicts = scope.spawn(|| browser.evicts(direct.cluster(), &name));
            assert!(runtime.block_on(proxy.fired(SOON)));
            proxy.freeze();
            evicts.join().unwrap()
        });
        if answer.status == 504 {
            let answer = answer.json(504);
            assert_eq!(answer["outcome"], "may_have_happened", "{answer}");
            let message = answer["message"].as_str().unwrap();
            assert!(
                message.starts_with("It may have happened")
                    && message.contains("look at the table"),
                "{message}"
            );
            // It had happened, or does as soon as the network is back.
            proxy.heal();
            let began = Instant::now();
            while status_of(&direct, &name) != "Dead" {
                assert!(began.elapsed() < SOON, "{name} is not Dead");
                thread::sleep(secs(1));
            }
            return;
        }
        // The fault met a read.
        proxy.heal();
        said.push(answer.body);
        assert_eq!(status_of(&direct, &name), "Active", "{said:?}");
    }
    panic!("no commit met the fault: {said:?}");
}
