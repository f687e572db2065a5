//! Three silos in one process, one of which leaves:
//! `cargo run -p silo-membership --example cluster_of_three`.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use membership::{Preset, Silo};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut silos = Vec::new();
    for name in ["anna", "ben", "carl"] {
        let table = membership::connect("memory:example", "example".parse()?).await?;
        let silo = Silo::builder(table)
            .listen("127.0.0.1:0".parse()?)
            .name(name)
            .preset(Preset::Local)
            .start()
            .await?;
        println!("{name} is {}", silo.me());
        silos.push(silo);
    }
    let watcher = silos[0].clone();
    let view = watcher
        .wait_for(|view| view.active().count() == 3, Duration::from_secs(10))
        .await?;
    println!(
        "version {}: three are active, {:?} leads",
        view.version(),
        view.leader().map(|e| &e.info.silo_name)
    );

    if let Some(leaver) = silos.pop() {
        let guard = leaver.begin_leave().await;
        println!(
            "carl drains now; the others know since version {:?}",
            guard.version()
        );
        println!("carl: {:?}", guard.finish().await);
    }
    let after = watcher
        .wait_for(|view| view.active().count() == 2, Duration::from_secs(10))
        .await?;
    for change in after.changes_since(&view) {
        println!(
            "version {}: {} {:?}",
            after.version(),
            change.entry.info.silo_name,
            change.kind
        );
    }
    Ok(())
}
