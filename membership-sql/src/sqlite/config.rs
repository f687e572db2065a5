//! Which file, and how to use it: options and URLs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use membership_core::{ConnectionString, TableError, TableErrorKind};
use membership_provider::{Timeouts, check_timeout};

use super::STORE;
use super::error::error;

/// Where the table is and how it is used.
///
/// ```
/// use std::time::Duration;
/// use membership_sql::SqliteConfig;
///
/// let config = SqliteConfig::new("membership.db").operation_timeout(Duration::from_secs(3));
/// assert_eq!(config, SqliteConfig::from_url("sqlite:membership.db?operation_timeout=3s")?);
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteConfig {
    path: PathBuf,
    create: bool,
    operation_timeout: Duration,
    allow_network_file_system: bool,
}

/// The schemes of its URLs.
pub(super) const SCHEMES: &[&str] = &["sqlite"];
/// Longer than the slowest disk writes its log, and short enough for a silo to notice that the disk
/// is gone.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

impl SqliteConfig {
    /// The file at `path`, absolute or relative to the current directory at the time of opening.
    /// Its directory must exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            create: true,
            operation_timeout: DEFAULT_TIMEOUT,
            allow_network_file_system: false,
        }
    }

    /// Reads `sqlite:path?option=value&…`. The path is relative (`sqlite:membership.db`) or
    /// absolute (`sqlite:/var/lib/m.db`, `sqlite:///var/lib/m.db`); `%hh` is a byte, so that `%3F`
    /// is a question mark in a file name. The options are `create`, `operation_timeout` (such as
    /// `3s` or `500ms`) and `allow_network_file_system`.
    ///
    /// # Errors
    /// `Configuration`: another scheme, no path, an unknown option or a bad value.
    pub fn from_url(url: &str) -> Result<Self, TableError> {
        let url = ConnectionString::parse_file(STORE, SCHEMES, url)?;
        let path = url.path.unwrap_or_default();
        // `sqlite:///C:/data/m.db` names a drive, not a directory called `C:` below the root.
        let drive = path.as_bytes();
        let path = if cfg!(windows) && drive.len() > 2 && drive[0] == b'/' && drive[2] == b':' {
            path[1..].to_owned()
        } else {
            path
        };
        let mut config = Self::new(path);
        for option in url.options {
            config = match option.name() {
                "create" => config.create(option.flag()?),
                "allow_network_file_system" => config.allow_network_file_system(option.flag()?),
                "operation_timeout" => config.operation_timeout(option.duration()?),
                _ => {
                    return Err(
                        option.unknown("create, operation_timeout and allow_network_file_system")
                    );
                }
            };
        }
        config.validate()?;
        Ok(config)
    }

    /// Whether `initialize` creates a missing file. Default: true. No other operation creates it.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// The time of one operation, including waiting for other processes: 10 ms to 1 h. Default: 10
    /// s. Two or three times the slowest write of the disk is a good value; a silo tries again
    /// after a timeout.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// Whether a file on a network file system is accepted. Default: false. It is safe only if
    /// **all** processes that use the file run on one machine and the file system's locks work.
    #[must_use]
    pub fn allow_network_file_system(mut self, allow: bool) -> Self {
        self.allow_network_file_system = allow;
        self
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn creates(&self) -> bool {
        self.create
    }

    pub(super) const fn timeout(&self) -> Duration {
        self.operation_timeout
    }

    pub(super) const fn allows_network(&self) -> bool {
        self.allow_network_file_system
    }

    /// Refuses what cannot work with any disk.
    pub(super) fn validate(&self) -> Result<(), TableError> {
        let text = self.path.to_string_lossy();
        if text.is_empty() {
            return Err(wrong("no file is named: write sqlite:path"));
        }
        if text.contains(":memory:") {
            let message =
                "SQLite's `:memory:` is private to one connection: use `memory:` or a file";
            return Err(wrong(message));
        }
        if text.contains('\0') {
            return Err(wrong("the path contains a NUL character"));
        }
        let timeout = self.operation_timeout;
        check_timeout(STORE, "operation_timeout", timeout, &Timeouts::RANGE)
    }
}

fn wrong(message: &str) -> TableError {
    error(TableErrorKind::Configuration, message)
}

#[cfg(test)]
#[path = "../../tests/unit/sqlite/config.rs"]
mod tests;
