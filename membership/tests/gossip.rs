//! Members of a cluster without a store, in one process, over real connections.
#![cfg(feature = "gossip")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod gossip_cases {
    mod arbiter;
}

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use membership::gossip::{
    Config, Downing, EventKind, Inspector, JoinError, Member, MemberBuilder, MemberStatus,
    StartError, Termination, downing,
};
use membership::transport::{Secret, Security};
use membership::{
    ClusterName, EventKind as SiloEvent, ListenError, Members, MemoryTable, Rendezvous, Silo,
    SiloAddress,
};

/// How long anything may take. Machines of tests are slow and shared.
const PATIENCE: Duration = Duration::from_secs(60);

fn cluster() -> ClusterName {
    "gossip/test".parse().unwrap()
}

/// Addresses at which nobody listens, in ascending order.
fn free(count: usize) -> Vec<SocketAddr> {
    let listeners: Vec<_> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let mut all: Vec<_> = listeners
        .iter()
        .map(|listener| listener.local_addr().unwrap())
        .collect();
    all.sort_unstable();
    all
}

/// Fast enough for a test, and patient enough for a machine that is busy.
fn quick() -> Config {
    let ms = Duration::from_millis;
    let mut config = Config::default();
    config.seed_node_timeout = ms(500);
    config.gossip_interval = ms(100);
    config.leader_actions_interval = ms(100);
    config.heartbeat_interval = ms(200);
    config
}

fn plain(at: SocketAddr) -> MemberBuilder {
    Member::builder(cluster())
        .listen(at)
        .security(Security::none())
        .config(quick())
}

struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn secret(text: &str) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, text.repeat(16)).unwrap();
    File {
        _folder: folder,
        path,
    }
}

fn secured(at: SocketAddr, secret: &File) -> MemberBuilder {
    let secret = Secret::file(&secret.path).unwrap();
    plain(at).security(Security::tls().with_secret(secret))
}

/// Starts members that join each other.
async fn joined(builders: Vec<MemberBuilder>, points: &[SocketAddr]) -> Vec<Member> {
    let mut members = Vec::new();
    for builder in builders {
        members.push(builder.start().await.unwrap());
    }
    let joins = members.iter().map(|member| member.join(points.to_vec()));
    let joins = futures_util::future::join_all(joins);
    let joins = tokio::time::timeout(PATIENCE, joins).await.unwrap();
    joins.into_iter().for_each(|view| drop(view.unwrap()));
    members
}

async fn agree(members: &[Member], active: usize) {
    for member in members {
        let agreed = |view: &membership::gossip::GossipView| {
            view.converged() && view.active().count() == active
        };
        member.wait_for(agreed, PATIENCE).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_with_a_secret_agree_and_leave() {
    let (points, secret) = (free(4), secret("ab"));
    let builders = points.iter().enumerate().map(|(n, at)| {
        let role = if n == 0 { "front" } else { "back" };
        secured(*at, &secret).role(role).name(format!("member-{n}"))
    });
    let members = joined(builders.collect(), &points[..3]).await;
    agree(&members, 4).await;

    let views: Vec<_> = members.iter().map(|m| m.view().unwrap()).collect();
    assert!(
        views
            .iter()
            .all(|view| view.version() == views[0].version())
    );
    let leader = views[0].leader().unwrap();
    assert_eq!(leader.endpoint(), points[0], "the lowest address");
    assert_eq!(views[0].roles().len(), 2);
    let owner = |key: &str| views[0].owner(key).unwrap().address();
    assert!(
        views
            .iter()
            .all(|v| v.owner("key").unwrap().address() == owner("key"))
    );
    assert_eq!(views[0].role("back").count(), 3);

    // It leaves with a hand-over: all know before it ends.
    let leaver = members[3].clone();
    let guard = leaver.begin_leave().await;
    let status = leaver.view().unwrap().status(&leaver.me());
    assert_eq!(status, Some(MemberStatus::Exiting));
    assert!(!leaver.health().ready && leaver.health().live);
    assert_eq!(guard.finish().await, Termination::Left);
    agree(&members[..3], 3).await;
    let gone = members[0].view().unwrap().status(&leaver.me());
    assert_eq!(gone, Some(MemberStatus::Removed));
    assert!(!leaver.health().live);

    // The last handle is dropped.
    let mut members = members;
    members.truncate(3);
    members.pop();
    agree(&members, 2).await;
    for member in members {
        member.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_downed_by_hand_and_ends() {
    let points = free(3);
    let builders = points.iter().map(|at| plain(*at)).collect();
    let members = joined(builders, &points).await;
    agree(&members, 3).await;
    let (victim, nobody) = (members[2].me(), SiloAddress::at(points[2], 1));
    assert!(members[0].down(nobody).await.is_err());
    members[0].down(victim).await.unwrap();
    assert_eq!(members[2].terminated().await, Termination::Downed);
    assert_eq!(members[2].leave().await, Termination::Downed);
    assert!(members[2].down(victim).await.is_err());
    agree(&members[..2], 2).await;

    // A new process at the same address is a new member.
    let again = joined(vec![plain(points[2])], &points).await;
    assert!(again[0].me().epoch() > victim.epoch());
    agree(&members[..2], 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_sees_and_changes_a_cluster() {
    let (points, secret) = (free(3), secret("cd"));
    let builders = points.iter().map(|at| secured(*at, &secret)).collect();
    let members = joined(builders, &points).await;
    agree(&members, 3).await;
    let security = Security::tls().with_secret(Secret::file(&secret.path).unwrap());
    let mut tool = Inspector::new(cluster(), security).await.unwrap();
    let view = tool.view(points[1], PATIENCE).await.unwrap();
    assert_eq!((view.me(), view.converged()), (members[1].me(), true));
    assert_eq!(view.founding(), members[0].view().unwrap().founding());
    assert_eq!(view.active().count(), 3);

    let nobody = SiloAddress::at("127.0.0.1:1".parse().unwrap(), 7);
    let error = tool.down(points[0], nobody, PATIENCE);
    assert!(
        error
            .await
            .unwrap_err()
            .to_string()
            .contains("is no member")
    );
    tool.leave(points[0], members[2].me(), PATIENCE)
        .await
        .unwrap();
    let left = members[2].begin_leave().await.finish().await;
    assert_eq!(left, Termination::Left);
    tool.down(points[0], members[1].me(), PATIENCE)
        .await
        .unwrap();
    assert_eq!(members[1].terminated().await, Termination::Downed);
    tool.down(points[0], members[0].me(), PATIENCE)
        .await
        .unwrap();
    assert_eq!(members[0].terminated().await, Termination::Downed);
    let error = tool.view(points[0], Duration::from_secs(5)).await;
    assert!(error.unwrap_err().to_string().contains("cannot connect"));
    tool.close().await;

    // Without the secret nobody is heard.
    let lonely = secured(points[0], &secret).start().await.unwrap();
    let other = self::secret("ef");
    let security = Security::tls().with_secret(Secret::file(&other.path).unwrap());
    let mut stranger = Inspector::new(cluster(), security).await.unwrap();
    let error = stranger.view(points[0], PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("introduction"), "{error}");
    drop(lonely);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_others_ask_to_leave_has_the_time_for_leaving() {
    let points = free(2);
    let mut config = quick();
    config.leave_timeout = Duration::from_secs(2);
    let builders = points.iter().map(|at| plain(*at).config(config.clone()));
    let members = joined(builders.collect(), &points).await;
    agree(&members, 2).await;
    let mut tool = Inspector::new(cluster(), Security::none()).await.unwrap();
    let leaver = members[1].me();
    tool.leave(points[0], leaver, PATIENCE).await.unwrap();
    // Its application does nothing about it.
    let end = members[1].terminated().await;
    assert_eq!(end, Termination::LeaveTimedOut);
    agree(&members[..1], 1).await;
}

/// Waits for the reason why a contact point does not answer.
async fn contact_failed(builder: MemberBuilder, points: Vec<SocketAddr>) -> String {
    let mut events = builder.events();
    let member = builder.start().await.unwrap();
    let reason = async {
        loop {
            match events.next().await.unwrap().kind {
                EventKind::ContactFailed {
                    contact_point,
                    reason,
                } if contact_point == points[0] => return reason,
                _ => {}
            }
        }
    };
    let join = member.join(points.clone());
    let reason = tokio::time::timeout(PATIENCE, async {
        tokio::select! { reason = reason => reason, joined = join => panic!("{joined:?}") }
    });
    let reason = reason.await.unwrap();
    member.leave().await;
    reason
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_dials_a_silo_is_told_so() {
    let at = free(2);
    let (silo_at, member_at) = (at[0], at[1]);
    let points = vec![silo_at, member_at];
    for security in [Security::none(), Security::table()] {
        let table = MemoryTable::new(cluster());
        let silo = Silo::builder(table)
            .listen(silo_at)
            .security(security.clone());
        let silo = silo.start().await.unwrap();
        let key = secret("01");
        let member = match security == Security::none() {
            true => plain(member_at),
            false => secured(member_at, &key),
        };
        let reason = contact_failed(member, points.clone()).await;
        assert!(
            reason.contains("it is a silo, of a cluster with a table"),
            "{reason}"
        );
        silo.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silo_that_dials_a_member_is_told_so() {
    let points = free(1);
    let member = joined(vec![plain(points[0])], &points).await;
    // The row of a silo that was there before: the new silo dials it.
    let table = MemoryTable::new(cluster());
    let row = membership::MembershipEntry::new(
        SiloAddress::at(points[0], 1),
        membership::InstanceId::new(1),
        membership::WallTime::from_millis(1),
    );
    let mut row = row;
    row.status = membership::SiloStatus::Active;
    use membership::{MembershipTable as _, TableExt as _};
    table.initialize(&common_request()).await.unwrap();
    let (read, _) = table.read_all().await.unwrap();
    let commit = membership::CommitId::new(1);
    table.insert_row(row, &read.token, commit).await.unwrap();
    let builder = Silo::builder(table)
        .listen("127.0.0.1:0".parse().unwrap())
        .security(Security::none());
    let mut events = builder.events();
    let starting = tokio::spawn(builder.start());
    let reason = tokio::time::timeout(PATIENCE, async {
        loop {
            if let SiloEvent::JoinProgress(progress) = events.next().await.unwrap().kind
                && let Some(why) = progress.unreached.iter().find_map(|u| u.last_error.clone())
            {
                return why;
            }
        }
    });
    let reason = reason.await.unwrap();
    assert!(reason.contains("which gossips"), "{reason}");
    starting.abort();
    drop(member);
}

fn common_request() -> membership::InitializeRequest {
    membership::InitializeRequest::new(
        membership::TableId::new(1),
        membership::SharedSettings::default(),
        membership::ClusterKey::new([7; 32]),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn members_with_different_secrets_or_none_do_not_join() {
    let points = free(2);
    let (one, two) = (secret("12"), secret("34"));
    let first = secured(points[0], &one).start().await.unwrap();
    let reason = contact_failed(secured(points[1], &two), points.clone()).await;
    assert!(reason.contains("demands a secret"), "{reason}");
    let reason = contact_failed(plain(points[1]), points.clone()).await;
    assert!(reason.contains("speaks TLS"), "{reason}");
    assert_eq!(
        first.leave().await,
        Termination::Left,
        "it was in no cluster"
    );
}

#[tokio::test]
async fn what_cannot_work_is_refused_at_the_start() {
    let at: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let trusting = Member::builder(cluster()).listen(at).start().await;
    let error = trusting.unwrap_err().to_string();
    assert!(error.contains("secret file or certificates"), "{error}");

    let error = Member::builder(cluster()).start().await.unwrap_err();
    assert!(matches!(
        error,
        StartError::Listen(ListenError::NoListenAddress)
    ));

    let mut config = quick();
    config.monitored_by = 0;
    let error = plain(at).config(config).start().await.unwrap_err();
    assert!(error.to_string().contains("monitored_by"), "{error}");

    let mut config = quick();
    config.downing = Downing::new(downing::Strategy::LeaseMajority {
        role: None,
        delay_for_minority: Duration::ZERO,
        release_after: Duration::from_secs(40),
    });
    let error = plain(at).config(config).start().await.unwrap_err();
    assert!(matches!(error, StartError::NoArbiter), "{error}");

    let member = plain(at).start().await.unwrap();
    assert_eq!(
        member.join([]).await.unwrap_err(),
        JoinError::NoContactPoints
    );
    assert_eq!(member.view(), None);
    assert_eq!(member.leave().await, Termination::Left);
    let error = member.join([at]).await.unwrap_err();
    assert_eq!(error, JoinError::Ended(Termination::Left));
}

/// Who owns a key does not depend on what the members agree by.
#[tokio::test(flavor = "multi_thread")]
async fn code_for_both_kinds_of_clusters() {
    fn owner_of(members: &dyn Members, key: &str) -> SiloAddress {
        members.owner(key.as_bytes()).unwrap().address
    }
    let points = free(3);
    let builders = points.iter().map(|at| plain(*at).zone("north"));
    let members = joined(builders.collect(), &points).await;
    agree(&members, 3).await;
    let view = members[1].view().unwrap();
    let names: Vec<String> = view.active().map(|m| m.address().to_string()).collect();
    for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let place = Rendezvous::of(&names).owner(key).unwrap();
        assert_eq!(owner_of(&view, key).to_string(), names[place]);
    }
    let seen: &dyn Members = &view;
    assert_eq!(seen.me(), members[1].me());
    assert_eq!((seen.active().count(), seen.zone("north").count()), (3, 3));

    let table = MemoryTable::new(cluster());
    let silo = Silo::builder(table).listen("127.0.0.1:0".parse().unwrap());
    let silo = silo.role("worker").start().await.unwrap();
    let seen = silo.members();
    assert_eq!((seen.me(), seen.role("worker").count()), (silo.me(), 1));
    assert_eq!(owner_of(&seen, "a"), silo.me());
    silo.leave().await;
}
