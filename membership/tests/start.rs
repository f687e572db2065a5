//! Errors of a silo that cannot start.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{CutTransport, FaultyTable, builder, local, loopback, silos, table};
use membership::{Silo, StartError};

#[tokio::test]
async fn an_invalid_configuration_names_the_field() {
    let mut config = local();
    config.num_missed_probes_limit = 0;
    let error = builder(table()).config(config).start().await.unwrap_err();
    assert!(
        error.to_string().contains("num_missed_probes_limit"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_address_is_an_error_with_advice() {
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
async fn a_port_in_use_is_named() {
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
    let mut config = local();
    config.max_join_attempt_time = Duration::from_secs(5);
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
    let table = table();
    let [a] = silos::<1>(&table).await;
    let mut config = local();
    config.max_join_attempt_time = Duration::from_secs(5);
    let error = builder(table)
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
    // The cluster shares the limit: the silo that creates the table writes it.
    let mut config = local();
    config.max_join_attempt_time = Duration::from_secs(4);
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
async fn a_table_that_stays_down_is_an_error() {
    let faulty = FaultyTable::new(table());
    faulty.down.store(true, std::sync::atomic::Ordering::SeqCst);
    let mut config = local();
    config.max_join_attempt_time = Duration::from_secs(3);
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
fn start_without_a_runtime_is_an_error() {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut start = std::pin::pin!(builder(table()).start());
    let std::task::Poll::Ready(Err(error)) = start.as_mut().poll(&mut context) else {
        panic!("it cannot start")
    };
    assert!(matches!(error, StartError::NoRuntime), "{error}");
}
