//! Where clients that are not silos may connect.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use membership_core::{
    Gateway, HintStream, MembershipTable, ReadAnswer, ReadRequest, SiloAddress, TableError,
    VersionToken,
};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::TimedTable;
use crate::watched::Watched;

/// How a [`GatewayList`] keeps itself up to date.
///
/// ```
/// use membership::GatewayOptions;
/// use std::time::Duration;
///
/// let options = GatewayOptions::default().with_refresh_period(Duration::from_secs(10));
/// assert_eq!(options.failed_for, Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatewayOptions {
    /// How often the table is read without a hint at a change. Default 60 s; at least 100 ms.
    pub refresh_period: Duration,
    /// How long one read may take. Default 10 s.
    pub table_call_timeout: Duration,
    /// For how long a gateway that was marked as failed is skipped. Default 60 s.
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

impl GatewayOptions {
    /// Sets [`refresh_period`](Self::refresh_period).
    #[must_use]
    pub const fn with_refresh_period(mut self, period: Duration) -> Self {
        self.refresh_period = period;
        self
    }

    /// Sets [`table_call_timeout`](Self::table_call_timeout).
    #[must_use]
    pub const fn with_table_call_timeout(mut self, timeout: Duration) -> Self {
        self.table_call_timeout = timeout;
        self
    }

    /// Sets [`failed_for`](Self::failed_for).
    #[must_use]
    pub const fn with_failed_for(mut self, time: Duration) -> Self {
        self.failed_for = time;
        self
    }
}

/// The gateways of a cluster, for clients that are not silos: read from the table periodically, and
/// kept while the table is down.
///
/// A [`Gateway`] is an Active silo with a gateway port. A crashed silo stays in the list until the
/// cluster declares it dead: mark it as failed, and take the next. Clones share one list; dropping
/// the last one ends the reading. While nothing changes, each reading is one request that reads no
/// rows, where the store can do that.
///
/// A client needs to read the table alone: give it an account that may not write. Who connects to
/// [`Gateway::endpoint`] meets the silo of that row, and nobody else, if the port uses the silo's key:
/// see [`SiloKey`](crate::transport::SiloKey).
///
/// ```
/// use membership::{GatewayList, GatewayOptions, ClusterKey, InitializeRequest, MembershipTable, MemoryTable};
/// use membership::{SharedSettings, TableId};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let table = MemoryTable::new("blue".parse()?);
/// let settings = SharedSettings::default();
/// let cluster_key = ClusterKey::new([9; 32]); // random
/// table.initialize(&InitializeRequest::new(TableId::new(1), settings, cluster_key)).await?;
/// let gateways = GatewayList::start(table, GatewayOptions::default()).await?;
/// match gateways.next() {
///     Some(gateway) => println!("dial {}", gateway.endpoint),
///     None => println!("no gateway yet; wait for gateways.updates()"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct GatewayList {
    inner: Arc<Inner>,
}

struct Inner {
    list: watch::Receiver<Arc<[Gateway]>>,
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
pub struct GatewayUpdates(Watched<Arc<[Gateway]>>);

impl GatewayUpdates {
    /// The next list; none when the [`GatewayList`] is gone. Cancel safe.
    pub async fn next(&mut self) -> Option<Arc<[Gateway]>> {
        use futures_core::Stream;
        std::future::poll_fn(|cx| std::pin::Pin::new(&mut self.0).poll_next(cx)).await
    }
}

impl futures_core::Stream for GatewayUpdates {
    type Item = Arc<[Gateway]>;

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
    /// Reads the list once, and continues to read it in the background. Needs a tokio runtime with
    /// time.
    ///
    /// # Errors
    /// The error of the first read; try again later. Later errors are only logged, and the last
    /// list stays.
    pub async fn start(
        table: impl MembershipTable,
        options: GatewayOptions,
    ) -> Result<Self, TableError> {
        let table = TimedTable::new(table, options.table_call_timeout);
        let (first, known) = match read(&table, None).await? {
            Some((list, token)) => (list, Some(token)),
            None => (Vec::new(), None),
        };
        let (sender, list) = watch::channel(first.into());
        let again = Arc::new(Notify::new());
        let period = options.refresh_period.max(Duration::from_millis(100));
        let reader = tokio::spawn(keep_reading(table, known, period, again.clone(), sender));
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

    /// The last list that was read, by address, including gateways that are marked as failed.
    #[must_use]
    pub fn current(&self) -> Arc<[Gateway]> {
        self.inner.list.borrow().clone()
    }

    /// The lists as they change, the current one first. The stream does not keep the reading going.
    #[must_use]
    pub fn updates(&self) -> GatewayUpdates {
        GatewayUpdates(Watched::new(self.inner.list.clone()))
    }

    /// The next gateway in turn that is not marked as failed. If all are, the one that was marked
    /// first, because it had the longest time to recover. None if there is no gateway.
    #[must_use]
    pub fn next(&self) -> Option<Gateway> {
        let list = self.current();
        let mut failed = self.failed();
        let now = Instant::now();
        failed.retain(|silo, at| {
            now.saturating_duration_since(*at) < self.inner.failed_for
                && list.iter().any(|gateway| gateway.silo == *silo)
        });
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let good: Vec<&Gateway> = list
            .iter()
            .filter(|gateway| !failed.contains_key(&gateway.silo))
            .collect();
        if let Some(chosen) = turn.checked_rem(good.len()).and_then(|at| good.get(at)) {
            return Some((*chosen).clone());
        }
        let (first, _) = failed.iter().min_by_key(|(_, at)| **at)?;
        list.iter().find(|gateway| gateway.silo == *first).cloned()
    }

    /// Skips the gateway of this silo for [`GatewayOptions::failed_for`], and reads the table soon.
    pub fn mark_failed(&self, silo: SiloAddress) {
        self.failed().insert(silo, Instant::now());
        self.refresh();
    }

    /// Stops skipping the gateway of this silo, because it works.
    pub fn mark_good(&self, silo: &SiloAddress) {
        self.failed().remove(silo);
    }

    /// Reads the table soon: at once, but at most once per second.
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

/// Hints and calls of `refresh` lead to at most one read in this time.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(1);

/// The gateways and the version that has them; none if that is still `known`. Reads the rows only
/// where the version has changed, and no heartbeats.
async fn read(
    table: &TimedTable,
    known: Option<VersionToken>,
) -> Result<Option<(Vec<Gateway>, VersionToken)>, TableError> {
    let request = ReadRequest::default().with_known(known);
    Ok(match table.read(&request).await? {
        ReadAnswer::Snapshot { snapshot, .. } => {
            let gateways = snapshot.rows.entries().filter_map(Gateway::of).collect();
            Some((gateways, snapshot.token))
        }
        // Unchanged.
        _ => None,
    })
}

async fn keep_reading(
    table: TimedTable,
    mut known: Option<VersionToken>,
    period: Duration,
    again: Arc<Notify>,
    sender: watch::Sender<Arc<[Gateway]>>,
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
        tokio::time::sleep_until(began + MIN_READ_INTERVAL.min(period)).await;
        // In a task of its own: a panic of a provider ends this read, not the loop.
        let reading = table.clone();
        let last = known.clone();
        let answer = tokio::spawn(async move { read(&reading, last).await }).await;
        match answer {
            Ok(Ok(None)) => {}
            Ok(Ok(Some((list, token)))) => {
                known = Some(token);
                sender.send_if_modified(|now| {
                    let changed = **now != *list;
                    if changed {
                        tracing::info!(cluster = %table.cluster(), gateways = list.len(), "gateways changed");
                        *now = list.into();
                    }
                    changed
                });
            }
            Ok(Err(error)) => {
                // The table may be another one now; the next read takes it as it is.
                known = None;
                tracing::warn!(cluster = %table.cluster(), %error, "gateways not read; the last list stays")
            }
            Err(error) => {
                tracing::error!(cluster = %table.cluster(), %error, "gateways not read: the provider panicked; the last list stays")
            }
        }
    }
}

/// Waits for the next hint; for ever if the stream has ended or there is none.
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
