//! What a silo says when it cannot start.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{CutTransport, FaultyTable, builder, local, loopback, silos, table};
use membership::{Config, Silo, StartError};

#[tokio::test]
async fn a_configuration_that_cannot_work_is_named() {
    let config = Config {
        num_missed_probes_limit: 0,
        ..local()
    };
    let error = builder(table()).config(config).start().await.unwrap_err();
    assert!(
        error.to_string().contains("num_missed_probes_limit"),
        "{error}"
    );
}

#[tokio::test]
async fn nowhere_to_listen_and_nowhere_to_dial_are_named() {
    let error = Silo::builder(table()).start().await.unwrap_err();
    assert!(matches!(error, StartError::NoListenAddress), "{error}");
    let error = Silo::builder(table())
        .listen("0.0.0.0:0".parse().unwrap())
        .start()
        .await
        .unwrap_err();
    assert!(error.to_string().contains(".advertise("), "{error}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind(loopback()).unwrap();
    let address = taken.local_addr().unwrap();
    let error = builder(table()).listen(address).start().await.unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_advertised_address_that_leads_nowhere_is_named() {
    let free = std::net::TcpListener::bind(loopback())
        .unwrap()
        .local_addr()
        .unwrap();
    let config = Config {
        max_join_attempt_time: Duration::from_secs(5),
        ..local()
    };
    let error = builder(table())
        .config(config)
        .advertise(free)
        .start()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&free.to_string()) && error.contains("advertise"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_advertised_address_that_leads_to_another_silo_is_named() {
    let [a] = silos::<1>(&table()).await;
    let config = Config {
        max_join_attempt_time: Duration::from_secs(5),
        ..local()
    };
    let error = builder(table())
        .config(config)
        .advertise(a.me().endpoint())
        .start()
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains(&a.me().to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silo_that_is_reached_in_one_direction_only_is_named_with_the_direction() {
    let table = table();
    let cut = CutTransport::bind().await;
    let blocked = cut.cut.clone();
    // The cluster shares the limit: whoever makes the table writes it.
    let config = Config {
        max_join_attempt_time: Duration::from_secs(4),
        ..local()
    };
    let old = Silo::builder(table.clone())
        .transport(Arc::new(cut))
        .config(config.clone())
        .start()
        .await
        .unwrap();
    let new = CutTransport::bind().await;
    blocked
        .lock()
        .unwrap()
        .insert(membership::transport::Transport::local_endpoint(&new));
    let error = Silo::builder(table)
        .transport(Arc::new(new))
        .config(config)
        .start()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&format!("{} does not reach me, I reach it", old.me())),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_down_is_an_error_in_the_end() {
    let faulty = FaultyTable::new(table());
    faulty.down.store(true, std::sync::atomic::Ordering::SeqCst);
    let config = Config {
        max_join_attempt_time: Duration::from_secs(3),
        ..local()
    };
    let error = builder(faulty)
        .config(config)
        .start()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("table") || error.contains("faulty"),
        "{error}"
    );
}

#[test]
fn without_a_runtime_start_says_so() {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut start = std::pin::pin!(builder(table()).start());
    let std::task::Poll::Ready(Err(error)) = start.as_mut().poll(&mut context) else {
        panic!("it cannot start")
    };
    assert!(matches!(error, StartError::NoRuntime), "{error}");
}
