//! Captures everything that a piece of work logs: at every level, by any crate.

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

/// How long the tasks of clients may go on logging after the work.
const TASKS_END: Duration = Duration::from_millis(50);

/// The result of a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured {
    /// Events and spans.
    pub lines: u64,
}

/// Runs the work on a separate thread with its own runtime. Fails if anything that is logged there,
/// also by the tasks that clients start, contains the secret. Lines that crates write through `log`
/// are included, unless this process has set a logger.
///
/// Dropping the future stops the work.
pub(crate) async fn never_logs<T: Send + 'static>(
    secret: &str,
    work: impl Future<Output = Result<T, Stop>> + Send + 'static,
) -> Result<(T, Captured), Stop> {
    let _ = tracing_log::LogTracer::init();
    let capture = Arc::new(Capture {
        secret: secret.to_owned(),
        lines: AtomicU64::new(0),
        found: Mutex::default(),
    });
    let dispatch = tracing::Dispatch::new(CaptureSubscriber(capture.clone()));
    // With a single subscriber, `tracing` asks only its thread whether a call site is enabled. A
    // call site that another thread reaches first would then be disabled everywhere. The second
    // subscriber prevents that.
    let second = tracing::Dispatch::new(CaptureSubscriber(capture.clone()));
    let (mut sender, receiver) = oneshot::channel();
    let thread = move || {
        // What the runtime itself logs while it is built is not the work's.
        let built = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let done = tracing::dispatcher::with_default(&dispatch, || {
            let runtime = match built {
                Ok(runtime) => runtime,
                Err(error) => {
                    return Some(Err(Stop::failed(format!(
                        "cannot build a runtime for the log capture: {error}"
                    ))));
                }
            };
            let work_and_tasks = async {
                let done = work.await;
                tokio::time::sleep(TASKS_END).await;
                done
            };
            let done = runtime.block_on(async {
                tokio::select! {
                    done = work_and_tasks => Some(done),
                    () = sender.closed() => None,
                }
            });
            runtime.shutdown_background();
            done
        });
        drop((dispatch, second));
        tracing::callsite::rebuild_interest_cache();
        if let Some(done) = done {
            let _ = sender.send(done);
        }
    };
    std::thread::Builder::new()
        .name("log-capture".to_owned())
        .spawn(thread)
        .map_err(|error| {
            Stop::failed(format!(
                "cannot start a thread for the log capture: {error}"
            ))
        })?;
    let done = receiver
        .await
        .map_err(|_| Stop::failed("the thread of the log capture panicked"))??;
    if let Some(line) = capture
        .found
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
    {
        return Err(Stop::failed(format!("the secret shows in the log: {line}")));
    }
    Ok((
        done,
        Captured {
            lines: capture.lines.load(Ordering::Relaxed),
        },
    ))
}

struct Capture {
    secret: String,
    lines: AtomicU64,
    /// The first line that contains the secret, with the secret removed.
    found: Mutex<Option<String>>,
}

impl Capture {
    fn add(&self, from: &Metadata<'_>, fields: &Fields) {
        self.lines.fetch_add(1, Ordering::Relaxed);
        if fields.0.contains(&self.secret) {
            let line = format!(
                "{} {}{}",
                from.level(),
                from.target(),
                fields.0.replace(&self.secret, "<the secret>")
            );
            self.found
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(line);
        }
    }
}

/// The fields of one line.
#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
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

struct CaptureSubscriber(Arc<Capture>);

impl Subscriber for CaptureSubscriber {
    /// Asked for each event, so that the call sites keep no state of this capture.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        self.0.add(span.metadata(), &fields);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        if fields.0.contains(&self.0.secret) {
            let line = format!("a span{}", fields.0.replace(&self.0.secret, "<the secret>"));
            self.0
                .found
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(line);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.add(event.metadata(), &fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "correct-horse-battery-staple";

    async fn logged_lines(work: impl Future<Output = ()> + Send + 'static) -> Result<u64, Stop> {
        never_logs(SECRET, async {
            work.await;
            Ok(())
        })
        .await
        .map(|((), captured)| captured.lines)
    }

    fn failure(result: Result<u64, Stop>) -> String {
        match result {
            Err(Stop::Failed(what)) => what,
            other => panic!("the secret was not found: {other:?}"),
        }
    }

    fn log() {
        tracing::info!("connected");
    }

    /// One test after the other: several captures at the same moment hide each other's faults.
    #[tokio::test]
    async fn logged_lines_are_captured() {
        a_call_site_that_another_thread_used_first_is_captured().await;
        assert_eq!(
            logged_lines(async { tracing::trace!("connected") })
                .await
                .unwrap(),
            1
        );
        assert!(
            failure(logged_lines(async { tracing::trace!(url = SECRET, "connected") }).await)
                .contains("url=<the secret>")
        );
        let task = async {
            drop(tokio::spawn(async {
                tracing::info!("connected with {SECRET}")
            }))
        };
        assert!(failure(logged_lines(task).await).contains("<the secret>"));
        assert!(
            failure(
                logged_lines(async {
                    drop(tracing::debug_span!("connection", key = ?Some(SECRET)))
                })
                .await
            )
            .contains("<the secret>")
        );
    }

    async fn a_call_site_that_another_thread_used_first_is_captured() {
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
        let lines = logged_lines(async move {
            listening.wait().await;
            logged.wait().await;
            log();
        });
        assert_eq!(lines.await.unwrap(), 1);
        others.await.unwrap();
    }
}
