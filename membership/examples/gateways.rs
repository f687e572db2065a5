//! A client that is not a silo:
//! `cargo run -p silo-membership --example gateways -- sqlite:membership.db blue`.
#![allow(clippy::print_stdout)]

use std::error::Error;

use membership::{GatewayList, GatewayOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args
        .next()
        .unwrap_or_else(|| "sqlite:membership.db".to_owned());
    let cluster = args.next().unwrap_or_else(|| "example".to_owned());
    let table = membership::connect(&url, cluster.parse()?).await?;
    let gateways = GatewayList::start(table, GatewayOptions::default()).await?;
    println!(
        "first: {:?}",
        gateways.next().map(|gateway| gateway.endpoint)
    );
    let mut updates = gateways.updates();
    while let Some(list) = updates.next().await {
        let endpoints: Vec<_> = list.iter().map(|gateway| gateway.endpoint).collect();
        println!("gateways: {endpoints:?}");
    }
    Ok(())
}
