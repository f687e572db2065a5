//! `membership top`: the table on the full screen, until `q`.

mod app;
mod draw;
mod keys;
mod pause;
mod screen;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::Event;
use membership::admin::ChangeError;
use membership::intent::Refusal;
use membership_core::{MembershipTable, NextStep, SiloAddress, Snapshot, TableError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::clock;
use crate::commands::{evict, watch};
use crate::exit::{Exit, Failure};
use crate::inspect::Inspection;
use crate::rows::{Filter, Sort};
use crate::session::{Session, TableArgs};
use crate::stop::Stops;
use app::{App, Wish};
use pause::{Pause, Pauses};
use screen::{Keys, Screen};

/// Show the table on the full screen: sort, filter, why a silo died, a time line, evict
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: TableArgs,
    /// How often to read the table
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    every: Duration,
    /// Only silos that match all of these: status=Active,zone=z1,role=…,name=…,host=…,silo=…,cause=voted
    #[arg(long, value_name = "KEY=VALUE,…")]
    filter: Option<Filter>,
    /// The order
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// No screen: one JSON object per line, as `membership watch` writes them
    #[arg(long, conflicts_with = "filter")]
    json: bool,
}

/// What a reading of the table gave, or an eviction.
enum News {
    Table(Box<Inspection>),
    Trouble(TableError),
    Evicted(SiloAddress, Result<Option<u64>, ChangeError<Refusal>>),
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    if args.every < Duration::from_millis(50) {
        return Err(Failure::usage("--every must be at least 50ms"));
    }
    let is_terminal = session.out.is_terminal() && io::stdin().is_terminal();
    if args.json || !is_terminal {
        if !args.json {
            session.err.line("this is no terminal, so the table is shown as `membership watch` does; sort and filter do not apply");
        }
        let watch = watch::Args {
            table: args.table,
            every: args.every,
            json: args.json,
        };
        return watch::run(watch, session).await;
    }
    let table = session.open(&args.table).await?;
    // Errors of the first read are told on the usual screen.
    let inspection = Inspection::of(table.as_ref()).await?;
    let mut stops = Stops::listen(false).map_err(|e| cannot("listen to signals", &e))?;
    let mut pauses = Pauses::listen().map_err(|e| cannot("listen to signals", &e))?;
    let mut app = App::new(
        args.table.cluster.to_string(),
        table.store().to_owned(),
        session.out.is_coloured(),
    );
    app.sort = args.sort;
    app.filter = args.filter.unwrap_or_default();
    let (send, mut news) = unbounded_channel();
    let first = inspection.snapshot.clone();
    app.on_table(inspection);
    let mut reader = tokio::spawn(read(Arc::clone(&table), first, args.every, send.clone()));
    // From here on the screen is restored however this ends.
    let mut screen = Screen::enter().map_err(|e| cannot("use the terminal", &e))?;
    let mut keys = Keys::listen().map_err(|e| cannot("read the keyboard", &e))?;
    let evict = |silo, reason: String| {
        let (table, send) = (Arc::clone(&table), send.clone());
        tokio::spawn(async move {
            let done = evict::evict(table.as_ref(), silo, &reason).await;
            let _ = send.send(News::Evicted(silo, done));
        });
    };
    let ended = tokio::select! {
        ended = serve(&mut app, &mut screen, &mut keys, (&mut stops, &mut pauses), &mut news, evict) => ended,
        // It ends by a panic alone.
        _ = &mut reader => Err(Failure::new(Exit::Failed, "the table is read no longer")),
    };
    reader.abort();
    drop(screen);
    ended?;
    Ok(Exit::Ok)
}

fn cannot(what: &str, error: &io::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("cannot {what}: {error}; `membership watch` needs no full screen"),
    )
}

async fn serve(
    app: &mut App,
    screen: &mut Screen,
    keys: &mut Keys,
    (stops, pauses): (&mut Stops, &mut Pauses),
    news: &mut UnboundedReceiver<News>,
    mut evict: impl FnMut(SiloAddress, String),
) -> Result<(), Failure> {
    // Ages go on while nothing happens.
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        screen
            .draw(|frame| draw::draw(app, frame))
            .map_err(|e| cannot("draw", &e))?;
        tokio::select! {
            _ = stops.next() => return Ok(()),
            pause = pauses.next() => match pause {
                Pause::Asked => screen.pause().map_err(|e| cannot("stop", &e))?,
                Pause::Over => screen.take().map_err(|e| cannot("use the terminal", &e))?,
            },
            _ = tick.tick() => app.now = clock::wall(),
            event = keys.next() => {
                let Some(event) = event else { return Ok(()) };
                if let Event::Resize(columns, rows) = event {
                    screen.resized(columns, rows).map_err(|e| cannot("draw", &e))?;
                }
                match app.on_event(&event) {
                    Some(Wish::Quit) => return Ok(()),
                    Some(Wish::Pause) => screen.pause().map_err(|e| cannot("stop", &e))?,
                    Some(Wish::Evict(silo, reason)) => evict(silo, reason),
                    None => {}
                }
            }
            Some(news) = news.recv() => match news {
                News::Table(inspection) => app.on_table(*inspection),
                News::Trouble(error) => {
                    if matches!(error.next_step(), NextStep::Retry | NextStep::FindOut) {
                        app.on_trouble(error.to_string());
                    } else {
                        return Err(error.into());
                    }
                }
                News::Evicted(silo, done) => app.on_evicted(silo, done),
            }
        }
    }
}

/// Reads the table again and again.
async fn read(
    table: Arc<dyn MembershipTable>,
    mut known: Snapshot,
    every: Duration,
    news: UnboundedSender<News>,
) {
    loop {
        tokio::time::sleep(every).await;
        let found = match watch::read_again(table.as_ref(), &known).await {
            Ok((snapshot, heartbeats)) => {
                known = snapshot.clone();
                News::Table(Box::new(Inspection {
                    snapshot,
                    heartbeats,
                    now: clock::wall(),
                }))
            }
            Err(error) => News::Trouble(error),
        };
        if news.send(found).is_err() {
            return;
        }
    }
}
