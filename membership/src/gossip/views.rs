//! The views of a member as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use membership_gossip::GossipView;
use tokio::sync::watch;

use crate::watched::Watched;

/// The views of a member: the current one first, then those that follow. A slow reader misses views
/// in between, never the newest ([`GossipView::changes_since`] gives what changed meanwhile). Begins
/// when the process is a member of a cluster; ends when it has ended for good.
///
/// Does not keep the member running. Dropping it, or the future of [`next`](Self::next), loses
/// nothing.
pub struct Views {
    inner: Watched<Option<GossipView>>,
}

impl Views {
    pub(super) fn new(receiver: watch::Receiver<Option<GossipView>>) -> Self {
        Self {
            inner: Watched::new(receiver),
        }
    }

    /// The next view; none when the member has ended for good. Cancel safe.
    pub async fn next(&mut self) -> Option<GossipView> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Views {
    type Item = GossipView;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<GossipView>> {
        loop {
            match std::task::ready!(Pin::new(&mut self.inner).poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Some(view)) => return Poll::Ready(Some(view)),
                Some(None) => {}
            }
        }
    }
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Views")
    }
}
