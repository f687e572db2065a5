//! What a majority of the servers has: a read that is confirmed by a write, which only a majority
//! acknowledges. Clause T6.

use async_nats::HeaderMap;
use bytes::Bytes;
use futures_util::future::{try_join, try_join3};
use membership_core::{TableError, TableErrorKind};

use crate::NatsDocuments;
use crate::client::Link;
use crate::commit::Attempt;
use crate::keys::State;
use crate::read::Found;

impl NatsDocuments {
    /// The newest message, as a majority of the servers has it. `guess` is what it may be, and
    /// `found` what is known to be there. Two proofs are tried at the same time: that a sequence is
    /// the newest one, and, because commits may follow each other too fast for that, that a message
    /// comes after one that was written during this call.
    pub(crate) async fn confirmed(
        &self,
        link: &Link,
        guess: Option<State>,
        found: Option<Found>,
    ) -> Result<Found, TableError> {
        let mut document = guess.map(|it| self.keys.document(it.identity));
        let mut guess = guess.map_or(0, |it| it.sequence);
        let there = async {
            match found {
                Some(found) => Ok(found),
                None => self.newest(link).await,
            }
        };
        let confirm = self.confirm(link, document.as_deref(), guess);
        // In this order: then a refusal tells of everything that was written before the barrier, and
        // what refuses the next attempt comes after it.
        let (floor, mut confirmed, mut there) =
            try_join3(self.write_barrier(link), confirm, there).await?;
        while let Err(last) = confirmed {
            if there.last > floor {
                return Ok(there);
            }
            // Otherwise that document is gone, or the server does not know it yet.
            document = document.filter(|_| last >= guess);
            guess = last;
            let confirm = self.confirm(link, document.as_deref(), guess);
            let (again, newer) = try_join(confirm, self.newest(link)).await?;
            confirmed = again;
            if newer.last > there.last {
                there = newer;
            }
        }
        // It was read before, or from a leader that was deposed.
        while confirmed.is_ok_and(|least| there.last < least) {
            there = self.newest(link).await?;
        }
        if there.document.is_none() {
            // A cluster that does not exist leaves nothing behind.
            link.purge(&self.keys.stream, &self.keys.barrier).await?;
        }
        Ok(there)
    }

    /// Whether `guess` is the newest sequence: a write beside the document is acknowledged on the
    /// condition that it is. If not, the newest one, as far as the server knows.
    async fn confirm(
        &self,
        link: &Link,
        document: Option<&str>,
        guess: u64,
    ) -> Result<Result<u64, u64>, TableError> {
        let compared = self.keys.another_name(document)?;
        let nothing = Bytes::new();
        let write = self.try_write(link, &self.keys.barrier, &compared, guess, &nothing);
        match write.await {
            Ok(Attempt::Written(_)) => Ok(Ok(guess)),
            Ok(Attempt::Refused(last)) => Ok(Err(last)),
            // Again, under another name.
            Ok(Attempt::Collided) => Ok(Err(guess)),
            Err(e) => self.is_without_bucket(link, e).await.map(|_| Ok(0)),
        }
    }

    /// The sequence of a write beside the document. Everything that was acknowledged before has a
    /// lower one. 0 without a bucket.
    async fn write_barrier(&self, link: &Link) -> Result<u64, TableError> {
        let written = self.publish(link, &self.keys.barrier, HeaderMap::new(), Bytes::new());
        match written.await? {
            Ok(written) => Ok(written.sequence),
            Err(refusal) => self
                .is_without_bucket(link, refusal.into())
                .await
                .map(|_| 0),
        }
    }

    /// That nothing was written because there is no bucket, in which case there is nothing to
    /// confirm: the leader of all servers says so. Otherwise the error.
    pub(crate) async fn is_without_bucket(
        &self,
        link: &Link,
        error: TableError,
    ) -> Result<bool, TableError> {
        match error.kind() {
            TableErrorKind::Unavailable if !self.check_bucket(link).await? => Ok(true),
            _ => Err(error),
        }
    }
}
