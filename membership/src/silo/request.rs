//! What handles ask of the driver, and where its answers go.

use std::collections::BTreeMap;

use membership_core::intent::Answer;
use membership_core::protocol::RequestId;
use membership_core::{MonoTime, SiloAddress, TableError};
use tokio::sync::oneshot;

/// How far leaving has been asked for: only ever forward. It has a channel of its own, which is never full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Running,
    Leave,
    Finish,
}

/// What a handle asks.
pub(super) enum Request {
    Evict {
        silo: SiloAddress,
        reason: String,
        reply: oneshot::Sender<Answer>,
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

enum Reply {
    Answer(oneshot::Sender<Answer>),
    Refreshed(oneshot::Sender<Result<u64, TableError>>),
}

impl Reply {
    fn is_closed(&self) -> bool {
        match self {
            Self::Answer(reply) => reply.is_closed(),
            Self::Refreshed(reply) => reply.is_closed(),
        }
    }
}

/// Requests without an answer yet. Dropping it tells all of them that there will be none.
#[derive(Default)]
pub(super) struct Waiting {
    last: u64,
    replies: BTreeMap<RequestId, Reply>,
}

/// More callers than this wait for nothing that one of them would not get by asking again.
const MOST: usize = 1024;

impl Waiting {
    pub(super) fn for_answer(&mut self, reply: oneshot::Sender<Answer>) -> Option<RequestId> {
        self.insert(Reply::Answer(reply))
    }

    pub(super) fn for_refresh(
        &mut self,
        reply: oneshot::Sender<Result<u64, TableError>>,
    ) -> Option<RequestId> {
        self.insert(Reply::Refreshed(reply))
    }

    fn insert(&mut self, reply: Reply) -> Option<RequestId> {
        if self.replies.len() >= MOST {
            self.replies.retain(|_, reply| !reply.is_closed());
        }
        if self.replies.len() >= MOST {
            return None;
        }
        self.last += 1;
        let id = RequestId(self.last);
        self.replies.insert(id, reply);
        Some(id)
    }

    pub(super) fn answered(&mut self, id: RequestId, answer: Answer) {
        // It waits for the next commit, and so does the caller.
        if answer == Answer::Queued {
            return;
        }
        if let Some(Reply::Answer(reply)) = self.replies.remove(&id) {
            let _ = reply.send(answer);
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
    fn callers_that_gave_up_make_room_and_the_rest_is_bounded() {
        let mut waiting = Waiting::default();
        for _ in 0..MOST {
            assert!(waiting.for_answer(oneshot::channel().0).is_some());
        }
        let (sender, receiver) = oneshot::channel();
        assert!(waiting.for_answer(sender).is_some());
        let held: Vec<_> = (1..MOST)
            .map(|_| {
                let (sender, receiver) = oneshot::channel();
                assert!(waiting.for_refresh(sender).is_some());
                receiver
            })
            .collect();
        assert!(waiting.for_answer(oneshot::channel().0).is_none());
        drop((receiver, held));
    }

    #[test]
    fn a_queued_answer_is_not_the_last_word() {
        let mut waiting = Waiting::default();
        let (sender, mut receiver) = oneshot::channel();
        let id = waiting.for_answer(sender).unwrap();
        waiting.answered(id, Answer::Queued);
        assert!(receiver.try_recv().is_err());
        waiting.answered(id, Answer::Moot);
        assert_eq!(receiver.try_recv(), Ok(Answer::Moot));
    }
}
