//! One `multi`, and how large it is: a request above the server's `jute.maxbuffer` looks like a broken connection, so that it must not be sent.

use membership_core::{TableError, TableErrorKind};
use zookeeper_client::{CreateOptions, MultiWriter};

use crate::error::{error, failed};
use crate::link::{Link, Session};

/// ZooKeeper's own limit is 1 MiB less a byte, in every version unless `jute.maxbuffer` says otherwise; this leaves room for its headers.
pub(crate) const LARGEST: usize = 1_040_000;
/// What an operation takes besides path and data: its header, lengths, version, flags, and the longest of our access control lists.
const EACH: usize = 72;

pub(crate) struct Batch<'a> {
    writer: MultiWriter<'a>,
    options: CreateOptions<'static>,
    bytes: usize,
    pub(crate) operations: usize,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(link: &Link, session: &'a Session) -> Self {
        Self {
            writer: session.client.new_multi_writer(),
            options: link.persistent(),
            bytes: 64,
            operations: 0,
        }
    }

    fn counted(&mut self, path: &str, data: &[u8]) {
        self.bytes += EACH + path.len() + data.len();
        self.operations += 1;
    }

    /// That the data of a znode were changed so often.
    pub(crate) fn check(&mut self, path: &str, version: i32) -> Result<(), TableError> {
        self.counted(path, &[]);
        self.writer.add_check_version(path, version).map_err(failed)
    }

    pub(crate) fn create(&mut self, path: &str, data: &[u8]) -> Result<(), TableError> {
        self.counted(path, data);
        self.writer
            .add_create(path, data, &self.options)
            .map_err(failed)
    }

    /// Whatever its version is, where none is given.
    pub(crate) fn set(
        &mut self,
        path: &str,
        data: &[u8],
        version: Option<i32>,
    ) -> Result<(), TableError> {
        self.counted(path, data);
        self.writer
            .add_set_data(path, data, version)
            .map_err(failed)
    }

    pub(crate) fn delete(&mut self, path: &str, version: Option<i32>) -> Result<(), TableError> {
        self.counted(path, &[]);
        self.writer.add_delete(path, version).map_err(failed)
    }

    /// Ready to be sent.
    ///
    /// # Errors
    /// `LimitExceeded`; nothing was sent.
    pub(crate) fn writer(self) -> Result<MultiWriter<'a>, TableError> {
        if self.bytes > LARGEST {
            let message = format!(
                "the request would have {} bytes, ZooKeeper takes {LARGEST}",
                self.bytes
            );
            return Err(error(TableErrorKind::LimitExceeded, message));
        }
        Ok(self.writer)
    }
}
