//! The first program of the README.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let table = membership::connect("sqlite:membership.db", "billing/blue".parse()?).await?;
    let silo = membership::Silo::builder(table)
        .listen("127.0.0.1:0".parse()?)
        .role("worker")
        .on_progress(|join| eprintln!("still joining: {}", join.waiting_for))
        .start()
        .await?;
    let mut views = silo.views();
    let stop = tokio::signal::ctrl_c();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            biased; // so that Ctrl-C is heard before the first view is shown
            // The others take over at once; without this they would have to find out.
            _ = &mut stop => break println!("stopped: {}", silo.leave().await),
            Some(view) = views.next() => {
                let owner = view.owner("customer/42").map(|silo| silo.address.to_string());
                let active = view.active().count();
                println!("version {}: {active} active, customer 42 belongs to {}", view.version(), owner.unwrap_or_default());
            }
            end = silo.terminated() => break println!("stopped: {end}"),
        }
    }
    Ok(())
}
