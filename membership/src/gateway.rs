//! Where clients that are no silos may connect.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::{HintStream, MembershipTable, SiloAddress, TableError, TableExt};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::TimedTable;
use crate::watched::Watched;

/// How a [`GatewayList`] keeps itself up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayOptions {
    /// How often the table is read when nothing hints at a change. Default 60 s; at least 100 ms.
    pub refresh_period: Duration,
    /// How long one read may take. Default 10 s.
    pub table_call_timeout: Duration,
    /// For how long a gateway that was marked as failed is passed over. Default 60 s.
    pub failed_for: Duration,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            refresh_period: seconds(60),
            table_call_timeout: seconds(10),
            failed_for: seconds(60),
        }
    }
}

/// The gateways of a cluster, for clients that are no silos: read from the table, again and again, and kept when the table is down.
///
/// A gateway is an Active silo with a gateway port; that port stands in its address here. A silo that crashed stays in the list until the
/// cluster has found out: mark it as failed, and take the next. Clones share one list; the last drop ends the reading.
///
/// ```
/// use membership::{GatewayList, GatewayOptions, InitializeRequest, MembershipTable, MemoryTable, SharedSettings, TableId};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let table = MemoryTable::new("blue".parse()?);
/// table.initialize(&InitializeRequest { table_id: TableId::new(1), settings: SharedSettings::default() }).await?;
/// let gateways = GatewayList::start(table, GatewayOptions::default()).await?;
/// match gateways.next() {
///     Some(gateway) => println!("dial {}", gateway.endpoint()),
///     None => println!("no gateway yet; gateways.updates() tells when there is"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct GatewayList {
    inner: Arc<Inner>,
}

struct Inner {
    list: watch::Receiver<Arc<[SiloAddress]>>,
    failed: Mutex<BTreeMap<SiloAddress, Instant>>,
    failed_for: Duration,
    turn: AtomicUsize,
    again: Arc<Notify>,
    reader: JoinHandle<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// The gateways as a stream: the current list first, then each that differs.
pub struct GatewayUpdates(Watched<Arc<[SiloAddress]>>);

impl GatewayUpdates {
    /// The next list; none when the [`GatewayList`] is gone. Cancel safe.
    pub async fn next(&mut self) -> Option<Arc<[SiloAddress]>> {
        use futures_core::Stream;
        std::future::poll_fn(|cx| std::pin::Pin::new(&mut self.0).poll_next(cx)).await
    }
}

impl futures_core::Stream for GatewayUpdates {
    type Item = Arc<[SiloAddress]>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::pin::Pin::new(&mut self.0).poll_next(cx)
    }
}

impl fmt::Debug for GatewayUpdates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GatewayUpdates")
    }
}

impl GatewayList {
    /// Reads the list once, and goes on reading in the background. Needs a tokio runtime with time.
    ///
    /// # Errors
    /// What the first read says; try again later. Later failures only show in the log, and the last list stays.
    pub async fn start(
        table: impl MembershipTable,
        options: GatewayOptions,
    ) -> Result<Self, TableError> {
        let table = TimedTable::new(table, options.table_call_timeout);
        let (tell, list) = watch::channel(table.gateways().await?.into());
        let again = Arc::new(Notify::new());
        let period = options.refresh_period.max(Duration::from_millis(100));
        let reader = tokio::spawn(keep_reading(table, period, again.clone(), tell));
        let inner = Inner {
            list,
            failed: Mutex::default(),
            failed_for: options.failed_for,
            turn: AtomicUsize::new(0),
            again,
            reader,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The last list that was read, by address; marked ones included.
    #[must_use]
    pub fn current(&self) -> Arc<[SiloAddress]> {
        self.inner.list.borrow().clone()
    }

    /// The lists as they change, the current one first. Does not keep the reading up.
    #[must_use]
    pub fn updates(&self) -> GatewayUpdates {
        GatewayUpdates(Watched::new(self.inner.list.clone()))
    }

    /// The gateways in turn, without those marked as failed. When all are, the one that was marked first: it had the longest time to
    /// recover. None when there is none.
    #[must_use]
    pub fn next(&self) -> Option<SiloAddress> {
        let list = self.current();
        let mut failed = self.failed();
        let now = Instant::now();
        failed.retain(|silo, at| {
            now.saturating_duration_since(*at) < self.inner.failed_for && list.contains(silo)
        });
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let good: Vec<&SiloAddress> = list
            .iter()
            .filter(|silo| !failed.contains_key(silo))
            .collect();
        if let Some(chosen) = turn.checked_rem(good.len()).and_then(|at| good.get(at)) {
            return Some(**chosen);
        }
        failed
            .iter()
            .min_by_key(|(_, at)| **at)
            .map(|(silo, _)| *silo)
    }

    /// Passes a gateway over for [`GatewayOptions::failed_for`], and has the table read soon.
    pub fn mark_failed(&self, gateway: SiloAddress) {
        self.failed().insert(gateway, Instant::now());
        self.refresh();
    }

    /// A gateway that works after all.
    pub fn mark_good(&self, gateway: &SiloAddress) {
        self.failed().remove(gateway);
    }

    /// Has the table read soon: at once, but never more than once in a second.
    pub fn refresh(&self) {
        self.inner.again.notify_one();
    }

    fn failed(&self) -> MutexGuard<'_, BTreeMap<SiloAddress, Instant>> {
        self.inner
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for GatewayList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayList")
            .field("current", &self.current())
            .finish_non_exhaustive()
    }
}

/// Hints and wishes are answered at most this often.
const AT_MOST: Duration = Duration::from_secs(1);

async fn keep_reading(
    table: TimedTable,
    period: Duration,
    again: Arc<Notify>,
    tell: watch::Sender<Arc<[SiloAddress]>>,
) {
    let table = Arc::new(table);
    let mut hints = table.hints();
    loop {
        let began = Instant::now();
        tokio::select! {
            () = tokio::time::sleep(period) => {}
            () = again.notified() => {}
            () = hint(&mut hints) => {}
        }
        tokio::time::sleep_until(began + AT_MOST.min(period)).await;
        // In a task of its own: a panic within a provider ends this reading, and not all that would follow.
        let reading = table.clone();
        let read = tokio::spawn(async move { reading.gateways().await }).await;
        match read {
            Ok(Ok(list)) => {
                tell.send_if_modified(|now| {
                    let changed = **now != *list;
                    if changed {
                        tracing::info!(cluster = %table.cluster(), gateways = list.len(), "gateways changed");
                        *now = list.into();
                    }
                    changed
                });
            }
            Ok(Err(error)) => {
                tracing::warn!(cluster = %table.cluster(), %error, "gateways not read; the last list stays")
            }
            Err(error) => {
                tracing::error!(cluster = %table.cluster(), %error, "gateways not read: the table's client broke off; the last list stays")
            }
        }
    }
}

/// The next hint; never, when there are none (any more).
async fn hint(hints: &mut Option<HintStream>) {
    if let Some(stream) = hints {
        if std::future::poll_fn(|cx| stream.as_mut().poll_next(cx))
            .await
            .is_some()
        {
            return;
        }
        *hints = None;
    }
    std::future::pending().await
}
