//! One connection: how it is made, its session's settings, batches and their answers.
//!
//! A connection whose operation was interrupted is never used again (clause T14): it is closed, and
//! the server rolls back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::TryStreamExt;
use futures_util::future::select_ok;
use membership_core::{TableError, TableErrorKind as Kind};
use membership_provider::install_crypto_provider;
use tiberius::error::Error;
use tiberius::{QueryItem, Row, ToSql};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::config::MssqlConfig;
use super::error::{NO_SUCH_TABLE, Phase, ends_connection, error, from_batch, from_mssql};
use super::sql::kind;
use crate::shared::pool::Link;

type Driver = tiberius::Client<Compat<TcpStream>>;

/// A value for a statement.
pub(super) type Value<'a> = &'a dyn ToSql;

/// One line of an answer.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) kind: i32,
    pub(super) silo: Option<String>,
    pub(super) body: Option<String>,
    pub(super) number: Option<i64>,
    pub(super) at: Option<String>,
}

/// How often a gateway may send a client on.
const ROUTES: usize = 3;
/// More addresses of one name are not tried.
const ADDRESSES: usize = 64;

pub(super) struct Connection {
    driver: Driver,
    /// Interrupted, or no longer useful.
    broken: bool,
    in_doubt: Arc<AtomicBool>,
    used: Instant,
    /// Whether the tables exist and are ours, as far as it is known.
    pub(super) known_tables: bool,
    pub(super) facts: super::checks::Facts,
}

#[async_trait]
impl Link for Connection {
    fn is_usable(&self) -> bool {
        !self.broken
    }

    fn idle(&self) -> Duration {
        self.used.elapsed()
    }

    async fn answers(&mut self) -> bool {
        self.read("SELECT 5;", &[]).await.is_ok()
    }

    fn begins(&mut self, in_doubt: Arc<AtomicBool>) {
        self.in_doubt = in_doubt;
    }
}

impl Connection {
    /// Connects and sets the session settings that we rely on.
    ///
    /// # Errors
    /// `Unavailable`, `Busy`, `PermissionDenied`, `Configuration`.
    pub(super) async fn open(config: &MssqlConfig) -> Result<Self, TableError> {
        install_crypto_provider();
        let mut connection = Self {
            driver: quietly(dial(config)).await?,
            broken: false,
            in_doubt: Arc::default(),
            used: Instant::now(),
            known_tables: false,
            facts: super::checks::Facts::default(),
        };
        // The server's answer comes before the operation's time is over, if possible.
        let lock = (config.timeout() / 2).as_millis();
        let settings = format!(
            "SET XACT_ABORT ON; SET NOCOUNT ON; SET IMPLICIT_TRANSACTIONS OFF; SET LOCK_TIMEOUT {lock}; SET ROWCOUNT 0; \
             SET ANSI_NULLS ON; SET ANSI_PADDING ON; SET ANSI_WARNINGS ON; SET ARITHABORT ON; SET CONCAT_NULL_YIELDS_NULL ON; \
             SET QUOTED_IDENTIFIER ON; SET NUMERIC_ROUNDABORT OFF; SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"
        );
        connection.batch(&settings).await.map_err(from_mssql)?;
        Ok(connection)
    }

    /// Executes a batch that only reads.
    ///
    /// # Errors
    /// Certainly nothing happened.
    pub(super) async fn read(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Line>, TableError> {
        let (_, answer) = self.send(sql, values).await;
        answer.map_err(|e| from_batch(e, Phase::Reading))
    }

    /// Executes a batch that writes.
    ///
    /// # Errors
    /// `OutcomeUnknown` if it may have been executed; otherwise it certainly was not.
    pub(super) async fn write(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Line>, TableError> {
        self.in_doubt.store(true, Ordering::Relaxed);
        let (committing, answer) = self.send(sql, values).await;
        let phase = match committing {
            true => Phase::Committing,
            false => Phase::Writing,
        };
        let answer = answer.map_err(|e| from_batch(e, phase));
        let unknown = matches!(&answer, Err(e) if e.kind() == Kind::OutcomeUnknown);
        self.in_doubt.store(unknown, Ordering::Relaxed);
        answer
    }

    /// Executes a batch without values.
    ///
    /// # Errors
    /// The error of the driver.
    pub(super) async fn batch(&mut self, sql: &str) -> Result<(), Error> {
        let was_broken = std::mem::replace(&mut self.broken, true);
        let run = async {
            let answer = self.driver.simple_query(sql).await?;
            answer.into_results().await.map(drop)
        };
        let answer = quietly(run).await;
        self.broken = was_broken || answer.as_ref().is_err_and(ends_connection);
        answer
    }

    /// The lines of an answer; with an error, whether COMMIT had begun before it.
    async fn send(&mut self, sql: &str, values: &[Value<'_>]) -> (bool, Result<Vec<Line>, Error>) {
        // If this future is dropped from here on, the connection stays broken.
        let was_broken = std::mem::replace(&mut self.broken, true);
        let mut lines = Vec::new();
        let driver = &mut self.driver;
        let run = async {
            let mut answer = driver.query(sql, values).await?;
            while let Some(item) = answer.try_next().await? {
                if let QueryItem::Row(row) = item {
                    lines.push(line(&row)?);
                }
            }
            Ok(())
        };
        let answer: Result<(), Error> = quietly(run).await;
        self.used = Instant::now();
        if matches!(&answer, Err(e) if e.code() == Some(NO_SUCH_TABLE)) {
            self.known_tables = false;
        }
        self.broken = was_broken || answer.as_ref().is_err_and(ends_connection);
        let committing = lines.iter().any(|line| line.kind == kind::COMMITTING);
        (committing, answer.map(|()| lines))
    }

    /// It must not be used again.
    pub(super) const fn discard(&mut self) {
        self.broken = true;
    }
}

/// The driver writes rows and parameters into the log, and one of them is the cluster's secret.
async fn quietly<T>(driver: impl Future<Output = T>) -> T {
    driver.with_subscriber(NoSubscriber::new()).await
}

/// A connection that is logged in.
///
/// All addresses of the name are tried at once: an availability group's listener has one in each
/// subnet, of which one answers.
async fn dial(config: &MssqlConfig) -> Result<Driver, TableError> {
    let driver = config.driver().await?;
    let mut server = config.server().clone();
    for _ in 0..ROUTES {
        let unreachable = |e: std::io::Error| {
            let message = format!("{server} cannot be reached ({e})");
            error(Kind::Unavailable, message).with_source(e)
        };
        let found = tokio::net::lookup_host((server.host.as_str(), server.port)).await;
        let addresses = found.map_err(unreachable)?.take(ADDRESSES);
        let attempts: Vec<_> = addresses
            .map(|it| Box::pin(TcpStream::connect(it)))
            .collect();
        if attempts.is_empty() {
            let message = format!("{} has no address", server.host);
            return Err(error(Kind::Unavailable, message));
        }
        let (stream, _) = select_ok(attempts).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        match Driver::connect(driver.clone(), stream.compat_write()).await {
            Err(Error::Routing { host, port }) => {
                server.host = host;
                server.port = port;
            }
            connected => return connected.map_err(from_mssql),
        }
    }
    let (host, port) = (server.host, server.port);
    Err(from_mssql(Error::Routing { host, port }))
}

/// A row with one column is a kind, with two a kind and a number.
fn line(row: &Row) -> Result<Line, Error> {
    let text = |at: usize| {
        row.try_get::<&str, _>(at)
            .map(|text| text.map(str::to_owned))
    };
    let mut line = Line {
        kind: row.try_get::<i32, _>(0)?.unwrap_or(-1),
        ..Line::default()
    };
    match row.len() {
        1 => {}
        2 => line.number = row.try_get(1)?,
        5 => {
            (line.silo, line.body, line.at) = (text(1)?, text(2)?, text(4)?);
            line.number = row.try_get(3)?;
        }
        _ => return Err(Error::Conversion("another number of columns".into())),
    }
    Ok(line)
}
