//! Several nodes, of which the URL names one. Clause T13.
//!
//! The second node is the first one once more: its row in the list of nodes is written by hand, and
//! its address leads to the same server.

use std::net::{Ipv4Addr, SocketAddr};

use conformance_tests::proxy::{Away, Proxy};
use membership_core::{MembershipTable, ReadRequest, TableErrorKind};
use membership_testbed::Server;

use crate::support::*;
use conformance_tests::helpers::*;

pub async fn a_dead_contact_point_is_not_needed_again(server: &Server) {
    let first = Proxy::to(server.address()).unwrap();
    // Nodes have the same port.
    let other = SocketAddr::from(([127, 0, 0, 2], first.address().port()));
    let second = Proxy::on(other, server.address()).unwrap();
    let shell = Shell::open(server.url()).await.unwrap();
    // On a busy machine it takes seconds to open a session again.
    let url = at(server, "by_many", "operation_timeout=15s");
    let url = url.replace(&server.address().to_string(), &first.address().to_string());
    // A new table knows the nodes of the list as it is then.
    let peer = std::net::IpAddr::from(Ipv4Addr::new(127, 0, 0, 2));
    let node = "INSERT INTO system.peers (peer, rpc_address, host_id, data_center, rack, tokens) \
                VALUES (?, ?, uuid(), 'datacenter1', 'rack1', {'0'})";
    shell.run(node, (peer, peer)).await.unwrap();
    let table = connect(&url).await.unwrap();
    let token = fill(&table, 1).await;
    first.set_away(Away::Refused);
    first.cut_connections();
    // The session loses the other node, too, for a moment, and must be opened again.
    assert!(second.cut_connections() > 0);
    let known = ReadRequest::all().with_known(Some(token.clone()));
    table.read(&known).await.unwrap();
    until("the other node is used", async || {
        read_kind(&table, Some(&token)).await.is_ok()
    })
    .await;
    let token = commit(&table, &insert(&token, [7])).await;
    // A read that must not rely on what was known before needs the contact point.
    let anew = ReadRequest::all().with_new_connection(true);
    let error = table.read(&anew).await.unwrap_err();
    assert_eq!(error.kind(), TableErrorKind::Unavailable, "{error}");
    assert_eq!(read_kind(&table, Some(&token)).await, Ok(()));
    shell
        .run("DELETE FROM system.peers WHERE peer = ?", (peer,))
        .await
        .unwrap();
    table.delete().await.unwrap();
}
