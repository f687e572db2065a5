//! One `multi`, and its size: the server answers a request above its `jute.maxbuffer` by closing
//! the connection, so that it must not be sent.

use membership_core::{TableError, TableErrorKind};
use zookeeper_client::{Acl, CreateOptions, MultiWriter};

use crate::error::{error, failed};

/// ZooKeeper's limit is 1 MiB less a byte, in every version unless `jute.maxbuffer` says otherwise.
/// This leaves room for its headers.
const LARGEST: usize = 1_040_000;
/// The bytes of an operation besides path and data: its header, lengths, version, flags, and an
/// access control list for everybody or the creator.
const EACH: usize = 72;
/// The bytes of each further user on the list, besides its name.
const USER: usize = 12;

pub(crate) struct Batch<'a> {
    writer: MultiWriter<'a>,
    options: CreateOptions<'a>,
    /// The bytes of each operation.
    each: usize,
    bytes: usize,
    pub(crate) operations: usize,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(writer: MultiWriter<'a>, options: CreateOptions<'a>, acls: &[Acl]) -> Self {
        let others = acls.iter().skip(1);
        let user = |acl: &Acl| USER + acl.scheme().len() + acl.id().len();
        Self {
            writer,
            options,
            each: EACH + others.map(user).sum::<usize>(),
            bytes: 64,
            operations: 0,
        }
    }

    fn count(&mut self, path: &str, data: &[u8]) {
        self.bytes += self.each + path.len() + data.len();
        self.operations += 1;
    }

    /// Requires this data version of a znode; -1 is any.
    pub(crate) fn check(&mut self, path: &str, version: i32) -> Result<(), TableError> {
        self.count(path, &[]);
        self.writer.add_check_version(path, version).map_err(failed)
    }

    pub(crate) fn create(&mut self, path: &str, data: &[u8]) -> Result<(), TableError> {
        self.count(path, data);
        let created = self.writer.add_create(path, data, &self.options);
        created.map_err(failed)
    }

    /// Replaces data, of any version if none is given.
    pub(crate) fn set(
        &mut self,
        path: &str,
        data: &[u8],
        version: Option<i32>,
    ) -> Result<(), TableError> {
        self.count(path, data);
        let set = self.writer.add_set_data(path, data, version);
        set.map_err(failed)
    }

    pub(crate) fn delete(&mut self, path: &str) -> Result<(), TableError> {
        self.count(path, &[]);
        self.writer.add_delete(path, None).map_err(failed)
    }

    /// Ready to be sent.
    ///
    /// # Errors
    /// `LimitExceeded`; nothing was sent.
    pub(crate) fn writer(self) -> Result<MultiWriter<'a>, TableError> {
        if self.bytes <= LARGEST {
            return Ok(self.writer);
        }
        let bytes = self.bytes;
        let message = format!("the request would have {bytes} bytes, ZooKeeper takes {LARGEST}");
        Err(error(TableErrorKind::LimitExceeded, message))
    }
}
