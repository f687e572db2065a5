//! Requests of handles to the driver, and its answers.

use std::collections::BTreeMap;

use membership_core::intent::{Answer, Refusal};
use membership_core::protocol::RequestId;
use membership_core::{MonoTime, SiloAddress, TableError};
use tokio::sync::oneshot;

/// A request of a handle.
pub(super) enum Request {
    Evict {
        silo: SiloAddress,
        reason: String,
        reply: oneshot::Sender<Evicted>,
    },
    Refresh {
        at_least: Option<u64>,
        reply: oneshot::Sender<Result<u64, TableError>>,
    },
    Heard {
        from: SiloAddress,
        asked: MonoTime,
    },
}

/// The version of the commit; none if the silo was Dead already.
pub(super) type Evicted = Result<Option<u64>, Refusal>;

enum Reply {
    Evicted(oneshot::Sender<Evicted>),
    Refreshed(oneshot::Sender<Result<u64, TableError>>),
}

impl Reply {
    fn is_closed(&self) -> bool {
        match self {
            Self::Evicted(reply) => reply.is_closed(),
            Self::Refreshed(reply) => reply.is_closed(),
        }
    }
}

/// Requests without an answer yet. Dropping it ends all of them.
#[derive(Default)]
pub(super) struct Waiting {
    last: u64,
    replies: BTreeMap<RequestId, Reply>,
}

/// Further requests are refused.
const MAX_WAITING: usize = 1024;

impl Waiting {
    pub(super) fn for_eviction(&mut self, reply: oneshot::Sender<Evicted>) -> Option<RequestId> {
        self.insert(Reply::Evicted(reply))
    }

    pub(super) fn for_refresh(
        &mut self,
        reply: oneshot::Sender<Result<u64, TableError>>,
    ) -> Option<RequestId> {
        self.insert(Reply::Refreshed(reply))
    }

    fn insert(&mut self, reply: Reply) -> Option<RequestId> {
        if self.replies.len() >= MAX_WAITING {
            self.replies.retain(|_, reply| !reply.is_closed());
        }
        if self.replies.len() >= MAX_WAITING {
            return None;
        }
        self.last += 1;
        let id = RequestId(self.last);
        self.replies.insert(id, reply);
        Some(id)
    }

    pub(super) fn answered(&mut self, id: RequestId, answer: Answer) {
        let evicted = match answer {
            Answer::Applied { version } => Ok(Some(version)),
            Answer::Moot => Ok(None),
            Answer::Refused(refusal) => Err(refusal),
            // The request is queued until the next commit, and the caller waits for that.
            _ => return,
        };
        if let Some(Reply::Evicted(reply)) = self.replies.remove(&id) {
            let _ = reply.send(evicted);
        }
    }

    pub(super) fn refreshed(&mut self, id: RequestId, result: Result<u64, TableError>) {
        if let Some(Reply::Refreshed(reply)) = self.replies.remove(&id) {
            let _ = reply.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_callers_are_bounded_and_cancelled_ones_do_not_count() {
        let mut waiting = Waiting::default();
        for _ in 0..MAX_WAITING {
            assert!(waiting.for_eviction(oneshot::channel().0).is_some());
        }
        let (sender, receiver) = oneshot::channel();
        assert!(waiting.for_eviction(sender).is_some());
        let held: Vec<_> = (1..MAX_WAITING)
            .map(|_| {
                let (sender, receiver) = oneshot::channel();
                assert!(waiting.for_refresh(sender).is_some());
                receiver
            })
            .collect();
        assert!(waiting.for_eviction(oneshot::channel().0).is_none());
        drop((receiver, held));
    }

    #[test]
    fn a_queued_answer_is_not_final() {
        let mut waiting = Waiting::default();
        let (sender, mut receiver) = oneshot::channel();
        let id = waiting.for_eviction(sender).unwrap();
        waiting.answered(id, Answer::Queued);
        assert!(receiver.try_recv().is_err());
        waiting.answered(id, Answer::Moot);
        assert_eq!(receiver.try_recv(), Ok(Ok(None)));
    }
}
