//! Servers that were the primary, and answer nevertheless.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use membership_core::{MembershipTable, ReadAnswer, ReadRequest, TableErrorKind};
use membership_sql::{PostgresConfig, PostgresFailover};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::postgres::Shell;
use crate::standby::{Standby, primary, url_of};
use crate::{commit, connect, insert, read, ready, silo};

/// A pooler in front of several servers: a client logs in once, and keeps its connection when its
/// session moves to another server.
#[derive(Clone)]
struct Pooler {
    sockets: Vec<PathBuf>,
    /// The server of new sessions.
    next: Arc<AtomicUsize>,
    /// The server of each session.
    sessions: Arc<Mutex<Vec<Arc<AtomicUsize>>>>,
}

impl Pooler {
    async fn start(sockets: Vec<PathBuf>) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let pooler = Self {
            sockets,
            next: Arc::default(),
            sessions: Arc::default(),
        };
        let serving = pooler.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let pooler = serving.clone();
                tokio::spawn(async move { pooler.serve(client).await });
            }
        });
        (pooler, address)
    }

    fn move_sessions(&self, to: usize) {
        for session in &*self.sessions.lock().unwrap() {
            session.store(to, Ordering::SeqCst);
        }
    }

    async fn serve(&self, mut client: TcpStream) -> Option<()> {
        let mut login = vec![0; 4];
        client.read_exact(&mut login).await.ok()?;
        let length = u32::from_be_bytes(login[..4].try_into().ok()?) as usize;
        login.resize(length, 0);
        client.read_exact(&mut login[4..]).await.ok()?;
        let session = Arc::new(AtomicUsize::new(self.next.load(Ordering::SeqCst)));
        let mut servers = Vec::new();
        for (n, socket) in self.sockets.iter().enumerate() {
            let connected = async {
                let mut server = UnixStream::connect(socket).await.ok()?;
                server.write_all(&login).await.ok()?;
                let greeting = messages(&mut server, b"Z").await?;
                Some((server, greeting))
            };
            let Some((server, greeting)) = connected.await else {
                return refuse(
                    &mut client,
                    "server login has been failing, try again later",
                )
                .await;
            };
            if n == session.load(Ordering::SeqCst) {
                client.write_all(&greeting).await.ok()?;
            }
            servers.push(server);
        }
        self.sessions.lock().unwrap().push(Arc::clone(&session));
        loop {
            let request = messages(&mut client, b"QS").await?;
            let server = &mut servers[session.load(Ordering::SeqCst)];
            let answered = async {
                server.write_all(&request).await.ok()?;
                messages(server, b"Z").await
            };
            let Some(answer) = answered.await else {
                return refuse(&mut client, "server conn crashed?").await;
            };
            client.write_all(&answer).await.ok()?;
        }
    }
}

/// As PgBouncer does it when the server is gone.
async fn refuse(client: &mut TcpStream, why: &str) -> Option<()> {
    let fields = format!("SFATAL\0C08P01\0M{why}\0\0");
    let mut message = vec![b'E'];
    let length = u32::try_from(fields.len()).unwrap() + 4;
    message.extend(length.to_be_bytes());
    message.extend(fields.as_bytes());
    client.write_all(&message).await.ok()
}

/// All messages up to one of these kinds.
async fn messages(from: &mut (impl AsyncRead + Unpin), last: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut head = [0; 5];
        from.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes(head[1..].try_into().ok()?) as usize - 4;
        let begin = all.len() + head.len();
        all.extend(head);
        all.resize(begin + length, 0);
        from.read_exact(&mut all[begin..]).await.ok()?;
        if last.contains(&head[0]) {
            return Some(all);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_no_standby_answers() {
    let primary = primary().await;
    let table = ready(&primary).await;
    let standby = Standby::of(&primary).await;
    let socket = |folder: PathBuf, port| folder.join(format!(".s.PGSQL.{port}"));
    let (pooler, address) = Pooler::start(vec![
        socket(
            primary.folder().unwrap().join("run"),
            primary.address().port(),
        ),
        socket(standby.folder.clone(), standby.port),
    ])
    .await;
    let url = format!(
        "{}?pooler=true&sslmode=disable&failover=safe",
        url_of(&primary, &address)
    );
    let pooled = connect(PostgresConfig::from_url(&url).unwrap())
        .await
        .unwrap();
    let before = read(&pooled).await.token;
    let there = Shell::connect(&standby.url(&primary)).await.unwrap();
    there.run("SELECT pg_wal_replay_pause()").await.unwrap();
    let token = commit(&table, &insert(&before, 1)).await;
    // The session moves to the standby, which does not know the commit.
    let all = ReadRequest::all();
    pooler.move_sessions(1);
    let ReadAnswer::Snapshot { snapshot, .. } = pooled.read(&all).await.unwrap() else {
        panic!("nothing was known");
    };
    assert_eq!(snapshot.token, token, "a standby has answered");
    pooler.move_sessions(1);
    let row = pooled.read_row(&silo(1), Some(&before)).await.unwrap();
    assert_eq!(row.token, token, "a standby has answered");
    // There is no primary behind the pooler.
    pooler.next.store(1, Ordering::SeqCst);
    pooler.move_sessions(1);
    let refused = pooled.read(&all).await.unwrap_err();
    assert_eq!(refused.kind(), TableErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("standby"), "{refused}");
    pooler.next.store(0, Ordering::SeqCst);
    assert_eq!(read(&pooled).await.token, token);
}

/// PgBouncer has one state for a server that is gone and for a client that asks for what it does not
/// have.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_without_its_server_is_waited_for() {
    let server = primary().await;
    let token = read(&ready(&server).await).await.token;
    let run = server.folder().unwrap().join("run");
    let socket = run.join(format!(".s.PGSQL.{}", server.address().port()));
    let (_pooler, address) = Pooler::start(vec![socket]).await;
    let url = format!("{}?pooler=true&sslmode=disable", url_of(&server, &address));
    let config = || PostgresConfig::from_url(&url).unwrap();
    let (reads, commits) = (
        connect(config()).await.unwrap(),
        connect(config()).await.unwrap(),
    );
    server.kill().await.unwrap();
    let request = insert(&token, 1);
    let unknown = commits.commit(&request).await.unwrap_err();
    assert_eq!(unknown.kind(), TableErrorKind::OutcomeUnknown, "{unknown}");
    for _ in 0..2 {
        let gone = reads.read(&ReadRequest::all()).await.unwrap_err();
        assert_eq!(gone.kind(), TableErrorKind::Unavailable, "{gone}");
    }
    let gone = connect(config()).await.unwrap_err();
    assert_eq!(gone.kind(), TableErrorKind::Unavailable, "{gone}");
    server.start_again().await.unwrap();
    assert_eq!(read(&reads).await.token, token);
    commit(&commits, &request.again()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_primary_is_left_once_its_answer_is_older_than_what_is_known() {
    let primary = primary().await;
    let token = {
        let table = ready(&primary).await;
        commit(&table, &insert(&read(&table).await.token, 1)).await
    };
    let standby = Standby::of(&primary).await;
    let hosts = format!("{},{}", primary.address(), standby.address());
    let both = PostgresConfig::from_url(&url_of(&primary, &hosts)).unwrap();
    let both = both.failover(PostgresFailover::MayLose);
    let (reads, rows, commits) = (
        connect(both.clone()).await.unwrap(),
        connect(both.clone()).await.unwrap(),
        connect(both).await.unwrap(),
    );
    let there = Shell::connect(&standby.url(&primary)).await.unwrap();
    there.run("SELECT pg_promote()").await.unwrap();
    let other = PostgresConfig::from_url(&standby.url(&primary)).unwrap();
    let other = connect(other).await.unwrap();
    let newer = commit(&other, &insert(&token, 2)).await;
    // The clients still use the former primary, and hear of the new commit from another silo.
    let known = |token| ReadRequest::all().with_known(Some(token));
    let old = reads.read(&known(token)).await.unwrap();
    assert!(matches!(old, ReadAnswer::Unchanged { .. }), "{old:?}");
    let new = reads.read(&known(newer.clone())).await.unwrap();
    assert!(matches!(new, ReadAnswer::Unchanged { .. }), "{new:?}");
    let row = rows.read_row(&silo(2), Some(&newer)).await.unwrap();
    assert!(row.row.is_some() && row.token == newer);
    let next = commit(&commits, &insert(&newer, 3)).await;
    // Later operations stay there.
    let later = reads.read(&known(next)).await.unwrap();
    assert!(matches!(later, ReadAnswer::Unchanged { .. }), "{later:?}");
}
