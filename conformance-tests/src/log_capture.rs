//! What a piece of work says to logs: at every level, by whichever crate.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use crate::Stop;

/// So long the tasks of clients may say something when all is done.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// What was heard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// Events, and spans.
    pub lines: u64,
}

/// Does this on a thread and a runtime of its own, and fails when anything that is logged there, also by the tasks that clients start,
/// contains the secret. What crates say through `log` is heard as well, unless this process has a logger already.
///
/// Dropping the future ends the work.
pub(crate) async fn nothing_said_of<T: Send + 'static>(
    secret: &str,
    work: impl Future<Output = Result<T, Stop>> + Send + 'static,
) -> Result<(T, Heard), Stop> {
    let _ = tracing_log::LogTracer::init();
    let ear = Arc::new(Ear {
        secret: secret.to_owned(),
        lines: AtomicU64::new(0),
        told: Mutex::default(),
    });
    let listening = tracing::Dispatch::new(Listener(ear.clone()));
    // Of one listener alone only its own thread is asked whether anybody listens, and a call site that another thread gets to first is
    // then silent everywhere.
    let second = tracing::Dispatch::new(Listener(ear.clone()));
    let (mut tell, told) = oneshot::channel();
    let thread = move || {
        let done = tracing::dispatcher::with_default(&listening, || {
            let runtime = match tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
            {
                Ok(runtime) => runtime,
                Err(error) => {
                    return Some(Err(Stop::failed(format!(
                        "no runtime to listen on: {error}"
                    ))));
                }
            };
            let and_its_tasks = async {
                let done = work.await;
                tokio::time::sleep(LAST_WORDS).await;
                done
            };
            let done = runtime.block_on(async {
                tokio::select! {
                    done = and_its_tasks => Some(done),
                    () = tell.closed() => None,
                }
            });
            runtime.shutdown_background();
            done
        });
        drop((listening, second));
        tracing::callsite::rebuild_interest_cache();
        if let Some(done) = done {
            let _ = tell.send(done);
        }
    };
    std::thread::Builder::new()
        .name("listening".to_owned())
        .spawn(thread)
        .map_err(|error| Stop::failed(format!("no thread to listen on: {error}")))?;
    let done = told
        .await
        .map_err(|_| Stop::failed("the thread that was listened to has panicked"))??;
    if let Some(line) = ear
        .told
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
    {
        return Err(Stop::failed(format!("the secret shows in the log: {line}")));
    }
    Ok((
        done,
        Heard {
            lines: ear.lines.load(Ordering::Relaxed),
        },
    ))
}

struct Ear {
    secret: String,
    lines: AtomicU64,
    /// The first line that tells the secret, without it.
    told: Mutex<Option<String>>,
}

impl Ear {
    fn hears(&self, from: &Metadata<'_>, said: &Said) {
        self.lines.fetch_add(1, Ordering::Relaxed);
        if said.0.contains(&self.secret) {
            let line = format!(
                "{} {}{}",
                from.level(),
                from.target(),
                said.0.replace(&self.secret, "<the secret>")
            );
            self.told
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(line);
        }
    }
}

/// The fields of one line.
#[derive(Default)]
struct Said(String);

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push_str(&format!(" {field}={value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.0.push_str(&format!(" {field}={value} {value:?}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

struct Listener(Arc<Ear>);

impl Subscriber for Listener {
    /// Asked each time, so that nothing of this is left behind in the call sites.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut said = Said::default();
        span.record(&mut said);
        self.0.hears(span.metadata(), &said);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut said = Said::default();
        values.record(&mut said);
        if said.0.contains(&self.0.secret) {
            let line = format!("a span{}", said.0.replace(&self.0.secret, "<the secret>"));
            self.0
                .told
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(line);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        self.0.hears(event.metadata(), &said);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "correct-horse-battery-staple";

    async fn said(work: impl Future<Output = ()> + Send + 'static) -> Result<u64, Stop> {
        nothing_said_of(SECRET, async {
            work.await;
            Ok(())
        })
        .await
        .map(|((), heard)| heard.lines)
    }

    fn told(said: Result<u64, Stop>) -> String {
        match said {
            Err(Stop::Failed(what)) => what,
            other => panic!("not told: {other:?}"),
        }
    }

    fn log() {
        tracing::info!("connected");
    }

    /// One after the other: listeners that listen at the same moment help each other.
    #[tokio::test]
    async fn what_is_logged_is_heard() {
        a_line_that_others_said_first_is_heard().await;
        assert_eq!(
            said(async { tracing::trace!("connected") }).await.unwrap(),
            1
        );
        assert!(
            told(said(async { tracing::trace!(url = SECRET, "connected") }).await)
                .contains("url=<the secret>")
        );
        let task = async {
            drop(tokio::spawn(async {
                tracing::info!("connected with {SECRET}")
            }))
        };
        assert!(told(said(task).await).contains("<the secret>"));
        assert!(
            told(
                said(async { drop(tracing::debug_span!("connection", key = ?Some(SECRET))) }).await
            )
            .contains("<the secret>")
        );
    }

    async fn a_line_that_others_said_first_is_heard() {
        let (listening, logged) = (
            Arc::new(tokio::sync::Barrier::new(2)),
            Arc::new(tokio::sync::Barrier::new(2)),
        );
        let others = tokio::spawn({
            let (listening, logged) = (listening.clone(), logged.clone());
            async move {
                listening.wait().await;
                log();
                logged.wait().await;
            }
        });
        let lines = said(async move {
            listening.wait().await;
            logged.wait().await;
            log();
        });
        assert_eq!(lines.await.unwrap(), 1);
        others.await.unwrap();
    }
}
