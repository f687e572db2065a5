//! What all clones of a table share: the thread that owns the file.

use std::sync::Arc;

use membership_core::{
    ClusterName, HintStream, Operation, TableError, TableErrorKind, TableLimits,
};

use super::config::SqliteConfig;
use super::error::error;
use super::session::{Gate, Session, reading};
use super::worker::Worker;

/// The tested limit; SQLite itself accepts more.
pub(super) const LIMITS: TableLimits = TableLimits::new(10_000, 1 << 20, 64 << 20, 100_000);

/// What all clones of a table share.
pub(super) struct Inner {
    worker: Worker,
    pub(super) cluster: ClusterName,
    pub(super) config: SqliteConfig,
}

impl Inner {
    /// Checks the path, and the tables if there is a file.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub(super) async fn connect(
        config: SqliteConfig,
        cluster: ClusterName,
    ) -> Result<Arc<Self>, TableError> {
        config.validate()?;
        let session = Session::new(config.path().to_owned(), config.creates(), &cluster);
        let worker = Worker::start(session, config.timeout()).map_err(|e| {
            error(TableErrorKind::Unavailable, "the system gives no thread").with_source(e)
        })?;
        let network = config.allows_network();
        let check = move |session: &mut Session, _: &dyn Gate| {
            session.check_path(network)?;
            if let Some((file, _)) = session.file()? {
                let reading = reading(&file.conn)?;
                file.tables.exist(&reading)?;
            }
            session.warn_of_mode();
            Ok(())
        };
        worker.call(Operation::Connect, check).await?;
        Ok(Arc::new(Self {
            worker,
            cluster,
            config,
        }))
    }

    /// Executes an operation on the thread.
    ///
    /// # Errors
    /// The errors of the operation, with its name; or a timeout.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        during: Operation,
        operation: impl FnOnce(&mut Session, &dyn Gate) -> Result<T, TableError> + Send + 'static,
    ) -> Result<T, TableError> {
        self.worker.call(during, operation).await
    }

    /// Closes the file after the queued operations.
    pub(super) async fn close(&self) {
        self.worker.close().await;
    }

    pub(super) fn hints(&self) -> HintStream {
        self.worker.listen()
    }
}
