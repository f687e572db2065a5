//! A master, a replica and a sentinel: the client finds the master, and finds the new one after the
//! master was killed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use conformance_tests::proxy::{Fault, Stage};
use membership_core::{
    Durability, MembershipTable, ReadAnswer, ReadRequest, Recency, TableErrorKind, VersionToken,
};
use membership_testbed::{Kind, Server};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::support::load::{Load, Phase};
use crate::support::nodes::{MASTER, Watched, caught_up, cut_off, replica_of, replication};
use crate::support::*;
use conformance_tests::helpers::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_successor_of_a_dead_master_is_found() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let watched = Watched::start(kind, Duration::from_secs(1)).await;
        let table = connect(&format!(
            "{}?min_replicas=1&operation_timeout=3s",
            watched.url()
        ))
        .await
        .unwrap();
        let guarantees = table.guarantees();
        assert_eq!(
            (guarantees.reads, guarantees.durability),
            (Recency::MonotonicPerClient, Durability::MayBeLost)
        );
        let token = fill(&table, 3).await;
        watched.master.kill().await.unwrap();
        let kind = commit_kind(&table, &insert(&token, [7])).await;
        assert!(
            matches!(
                kind,
                TableErrorKind::OutcomeUnknown | TableErrorKind::Unavailable
            ),
            "{kind:?}"
        );
        let calm = connect_when_possible(&watched).await;
        // The replica confirmed it before, so it still exists.
        assert_eq!(read(&calm).await.0.token, token);
        until("the old handle follows", async || {
            read_kind(&table, Some(&token)).await.is_ok()
        })
        .await;
        commit(&calm, &insert(&token, [8])).await;
        assert_eq!(read(&table).await.0.version(), token.version() + 1);
    }
}

/// Writers with one handle each, on a table that the replica already has: if a failover lost the
/// beginning of the table, no writer could continue.
async fn writers(watched: &Watched) -> Load {
    fill(&connect(&watched.url()).await.unwrap(), 0).await;
    caught_up(&watched.replica, &watched.master).await;
    let mut tables = Vec::new();
    for _ in 0..4 {
        tables.push(
            connect(&format!("{}?operation_timeout=2s", watched.url()))
                .await
                .unwrap(),
        );
    }
    Load::start(tables)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_successor_of_a_dead_master_is_followed_under_load() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let watched = Watched::start(kind, Duration::from_secs(1)).await;
        let load = writers(&watched).await;
        load.everybody_commits(20).await;
        load.enter(Phase::Trouble);
        watched.master.kill().await.unwrap();
        load.enter(Phase::After);
        load.everybody_commits(20).await;
        let ended = load.end(&connect(&watched.url()).await.unwrap()).await;
        let lost = ended.lost();
        assert!(
            lost.is_empty() || ended.told > 0,
            "versions {lost:?} are lost, and no writer got an error"
        );
    }
}

/// The old master keeps running, as a replica: clients that are connected to it must leave it.
#[tokio::test(flavor = "multi_thread")]
async fn clients_leave_a_demoted_master_under_load() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let watched = Watched::start(kind, Duration::from_secs(5)).await;
        let load = writers(&watched).await;
        load.everybody_commits(20).await;
        load.enter(Phase::Trouble);
        // The sentinel refuses while it considers the replica unreachable, for example after a
        // moment in which no process ran.
        let failover = async || {
            let mut sentinel = raw(watched.sentinel.url()).await.ok()?;
            redis::cmd("SENTINEL")
                .arg("FAILOVER")
                .arg(MASTER)
                .query_async::<()>(&mut sentinel)
                .await
                .ok()
        };
        until("the sentinel accepts the command", async || {
            failover().await.is_some()
        })
        .await;
        for (server, role) in [
            (&watched.replica, "role:master"),
            (&watched.master, "role:slave"),
        ] {
            // The sentinel closes all connections to the old master.
            until("the roles are changed", async || {
                let Ok(mut raw) = raw(server.url()).await else {
                    return false;
                };
                let info: Result<String, _> = redis::cmd("INFO")
                    .arg("replication")
                    .query_async(&mut raw)
                    .await;
                info.is_ok_and(|info| info.contains(role))
            })
            .await;
        }
        load.enter(Phase::After);
        load.everybody_commits(20).await;
        let ended = load.end(&connect(&watched.url()).await.unwrap()).await;
        let lost = ended.lost();
        assert!(
            lost.is_empty() || ended.told > 0,
            "versions {lost:?} are lost, and no writer got an error"
        );
    }
}

/// Commits that the successor never received are lost although they were acknowledged. A client
/// that knows them gets an error, and none of them is applied.
#[tokio::test]
async fn commits_that_a_failover_loses_are_reported() {
    let watched = Watched::start(Kind::Redis, Duration::from_secs(1)).await;
    let table = connect(&format!("{}?operation_timeout=3s", watched.url()))
        .await
        .unwrap();
    let old = fill(&table, 3).await;
    caught_up(&watched.replica, &watched.master).await;
    cut_off(&watched.master).await;
    let lost = commit(&table, &insert(&old, [7])).await;
    watched.master.kill().await.unwrap();
    until("the table is served again", async || {
        read_kind(&table, Some(&lost)).await != Err(TableErrorKind::Unavailable)
    })
    .await;
    assert_eq!(
        read_kind(&table, Some(&lost)).await,
        Err(TableErrorKind::TableRolledBack)
    );
    assert_eq!(
        commit_kind(&table, &insert(&lost, [8])).await,
        TableErrorKind::TableRolledBack
    );
    assert_eq!(read(&table).await.0.token, old);
    commit(&table, &insert(&old, [30])).await;
}

/// Replica and sentinel reach the master by the address that it announces to clients, and so
/// through the same proxy; faults on a client's connection do not affect them.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn faults_between_clients_and_servers_cause_no_failover() {
    let watched = Watched::start(Kind::Redis, Duration::from_secs(60)).await;
    let table = connect(&format!("{}?operation_timeout=2s", watched.url()))
        .await
        .unwrap();
    let mut token = fill(&table, 1).await;
    assert!(
        watched.proxy.links() > 0,
        "replica and sentinel do not go through the proxy"
    );
    // How often the replica has requested missed writes, or everything.
    let syncs = async || {
        let stats: String = shell(&watched.master, &["INFO", "stats"]).await;
        stats
            .lines()
            .filter(|line| line.starts_with("sync_"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = syncs().await;
    for stage in Stage::ALL {
        watched.proxy.set_fault(Fault::Cut(stage));
        let request = insert(&token, [10 + token.version()]);
        let answer = table.commit(&request).await;
        assert!(
            watched.proxy.fired(Duration::from_secs(30)).await,
            "{stage}"
        );
        watched.proxy.heal();
        assert_eq!(
            answer.is_ok(),
            stage == Stage::AfterAnswer,
            "{stage}: {answer:?}"
        );
        until("the client is back", async || {
            table.commit(&request.again()).await.is_ok()
        })
        .await;
        token = read(&table).await.0.token;
    }
    assert!(watched.proxy.cut_connections() > 0);
    until("the client is back", async || {
        read_kind(&table, Some(&token)).await.is_ok()
    })
    .await;
    caught_up(&watched.replica, &watched.master).await;
    assert_eq!(syncs().await, before, "the replica has lost its master");
    assert_eq!(replication(&watched.master, "connected_slaves").await, 1);
}

async fn connect_when_possible(watched: &Watched) -> membership_redis::RedisTable {
    let found = std::cell::RefCell::new(None);
    until("the replica is promoted", async || {
        let Ok(table) = connect(&format!("{}?operation_timeout=2s", watched.url())).await else {
            return false;
        };
        if read_kind(&table, None).await.is_err() {
            return false;
        }
        *found.borrow_mut() = Some(table);
        true
    })
    .await;
    found.into_inner().unwrap()
}

#[tokio::test]
async fn an_unknown_master_is_a_configuration_error() {
    let watched = Watched::start(Kind::Redis, Duration::from_secs(1)).await;
    let url = format!("redis+sentinel://{}/other", watched.sentinel.address());
    let error = connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Configuration);
    assert!(error.to_string().contains("`other`"), "{error}");
    // One unreachable sentinel does not matter.
    let url = format!(
        "redis+sentinel://127.0.0.1:1,{}/main",
        watched.sentinel.address()
    );
    fill(&connect(&url).await.unwrap(), 1).await;
}

/// A host that accepts connections and never answers, and one that answers no packet: its backlog
/// is full. They end with the listeners and the connections.
struct DeadHosts {
    accepts: TcpListener,
    full: TcpListener,
    _backlog: Vec<TcpStream>,
}

impl DeadHosts {
    async fn start() -> Self {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let accepts = TcpListener::bind(any).await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(any).unwrap();
        let full = socket.listen(1).unwrap();
        let mut waiting = Vec::new();
        let short = Duration::from_millis(200);
        while let Ok(connected) =
            tokio::time::timeout(short, TcpStream::connect(full.local_addr().unwrap())).await
        {
            waiting.push(connected.unwrap());
        }
        Self {
            accepts,
            full,
            _backlog: waiting,
        }
    }

    /// Their addresses, the one that accepts first.
    fn addresses(&self) -> [SocketAddr; 2] {
        [&self.accepts, &self.full].map(|listener| listener.local_addr().unwrap())
    }
}

/// A host that swallows packets makes nobody wait for the others.
#[tokio::test]
async fn silent_sentinels_in_front_cost_little() {
    let watched = Watched::start(Kind::Redis, Duration::from_secs(60)).await;
    let (dead, alive) = (DeadHosts::start().await, watched.sentinel.address());
    let [accepts, full] = dead.addresses();
    for hosts in [
        format!("{accepts},{alive}"),
        format!("{full},{alive}"),
        format!("{full},{accepts},{full},{alive}"),
    ] {
        let begun = Instant::now();
        let table = connect(&format!("redis+sentinel://{hosts}/{MASTER}"))
            .await
            .unwrap();
        let token = match initialize(&table).await.map(|()| read(&table)) {
            Ok(read) => read.await.0.token,
            Err(e) => panic!("{hosts}: {e}"),
        };
        assert!(begun.elapsed() < Duration::from_secs(5), "{hosts}");
        let begun = Instant::now();
        watched.proxy.cut_connections();
        assert_eq!(read_kind(&table, Some(&token)).await, Ok(()), "{hosts}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{hosts}");
    }
}

/// A sentinel of its own, which says that this server is the master since this epoch.
async fn sentinel_of(master: SocketAddr, epoch: u64, beside: &Server) -> Server {
    let name = format!("sentinel-{}-{epoch}.conf", master.port());
    let config = beside.folder().unwrap().join(name);
    let text = format!(
        "sentinel monitor {MASTER} 127.0.0.1 {} 2\nsentinel down-after-milliseconds {MASTER} 60000\n\
         sentinel config-epoch {MASTER} {epoch}\n",
        master.port()
    );
    std::fs::write(&config, text).unwrap();
    server(Kind::Redis, &[config.to_str().unwrap(), "--sentinel"]).await
}

async fn version_of(table: &dyn MembershipTable, request: &ReadRequest) -> u64 {
    match table.read(request).await.unwrap() {
        ReadAnswer::Snapshot { snapshot, .. } => snapshot.version(),
        other => panic!("{other:?}"),
    }
}

/// The former master does not know of the failover, and a sentinel that is cut off with it does not
/// either.
#[tokio::test]
async fn a_sentinel_that_missed_the_failover_is_outvoted() {
    let former = own_server().await;
    let first = table_on(&former, "").await;
    let old = fill(&first, 3).await;
    let successor = replica_of(&former, &[]).await;
    shell::<()>(&successor, &["REPLICAOF", "NO", "ONE"]).await;
    let lost_by_former = commit(&table_on(&successor, "").await, &insert(&old, [7])).await;
    let cut_off = sentinel_of(former.address(), 0, &former).await;
    let (one, other) = (
        sentinel_of(successor.address(), 1, &successor).await,
        sentinel_of(successor.address(), 1, &former).await,
    );
    let url = format!(
        "redis+sentinel://{},{},{}/{MASTER}",
        cut_off.address(),
        one.address(),
        other.address()
    );
    for _ in 0..3 {
        let table = connect(&url).await.unwrap();
        let anew = ReadRequest::all().with_new_connection(true);
        assert_eq!(version_of(&table, &ReadRequest::all()).await, 2);
        assert_eq!(version_of(&table, &anew).await, 2);
        assert_eq!(read_kind(&table, Some(&lost_by_former)).await, Ok(()));
    }
    // Two sentinels and the newer epoch also outvote one that answers first.
    other.kill().await.unwrap();
    let table = connect(&url).await.unwrap();
    assert_eq!(version_of(&table, &ReadRequest::all()).await, 2);
}

/// A sentinel that is cut off together with a former master ends no silo: the others may know the
/// successor.
#[tokio::test]
async fn a_former_master_that_few_sentinels_name_is_no_proof_of_a_loss() {
    let former = own_server().await;
    let old = fill(&table_on(&former, "").await, 3).await;
    let successor = replica_of(&former, &[]).await;
    shell::<()>(&successor, &["REPLICAOF", "NO", "ONE"]).await;
    let cut_off = sentinel_of(former.address(), 0, &former).await;
    let others = [
        sentinel_of(successor.address(), 1, &successor).await,
        sentinel_of(successor.address(), 1, &former).await,
    ];
    let [one, other] = others.each_ref().map(Server::address);
    let url = format!(
        "redis+sentinel://{one},{other},{}/{MASTER}",
        cut_off.address()
    );
    let table = connect(&url).await.unwrap();
    let newer = commit(&table, &insert(&old, [7])).await;
    for dead in others.iter().chain([&successor]) {
        dead.kill().await.unwrap();
    }
    // Whoever knows nothing newer is served.
    assert_eq!(read_kind(&table, Some(&old)).await, Ok(()));
    let unavailable = TableErrorKind::Unavailable;
    assert_eq!(read_kind(&table, Some(&newer)).await, Err(unavailable));
    let anew = ReadRequest::all()
        .with_known(Some(newer.clone()))
        .with_new_connection(true);
    assert_eq!(table.read(&anew).await.unwrap_err().kind(), unavailable);
    let request = insert(&newer, [8]);
    assert_eq!(commit_kind(&table, &request).await, unavailable);
    assert_eq!(
        commit_kind(&table, &request.again()).await,
        TableErrorKind::OutcomeUnknown
    );
}

/// A master is frozen until another one leads, and thawed with a client that is connected to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_thawed_master_is_left_once_its_answer_is_older_than_what_is_known() {
    let mut watched = Watched::start(Kind::Redis, Duration::from_secs(1)).await;
    watched.add_sentinels(2).await;
    let url = format!("{}?operation_timeout=3s", watched.url());
    let (reads, commits) = (connect(&url).await.unwrap(), connect(&url).await.unwrap());
    let token = fill(&reads, 3).await;
    let (barrier, barriers) = (
        ReadRequest::all().with_barrier(true),
        connect(&url).await.unwrap(),
    );
    for table in [&commits, &barriers] {
        assert_eq!(version_of(table, &barrier).await, token.version());
    }
    caught_up(&watched.replica, &watched.master).await;
    watched.master.pause().await.unwrap();
    let other = connect_when_possible(&watched).await;
    let newer: VersionToken = commit(&other, &insert(&token, [7])).await;
    watched.master.resume().await.unwrap();
    // Both clients still use the former master, and hear of the new commit from another silo.
    assert_eq!(
        read(&reads).await.0.token,
        token,
        "it is no master any more"
    );
    let error = barriers.read(&barrier).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Unavailable, "{error}");
    assert_eq!(version_of(&barriers, &barrier).await, newer.version());
    assert_eq!(read_kind(&reads, Some(&newer)).await, Ok(()));
    let next = commit(&commits, &insert(&newer, [8])).await;
    assert_eq!(read(&reads).await.0.token, next);
}
