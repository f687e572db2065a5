//! The views of a silo as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use membership_core::ClusterView;
use tokio::sync::watch;

use crate::watched::Watched;

/// The views of a silo: the current one first, then newer ones. Versions strictly rise, but for a
/// view that another silo announced and the table contradicts: the table's follows it. A slow
/// reader misses views in between, never the newest ([`ClusterView::changes_since`] gives what
/// changed meanwhile). Ends when the silo has stopped for good.
///
/// Does not keep the silo running. Dropping it, or the future of [`next`](Self::next), loses
/// nothing.
pub struct Views {
    inner: Watched<Option<ClusterView>>,
    /// Version and digest of the last one.
    last: Option<(u64, u128)>,
}

impl Views {
    pub(super) fn new(receiver: watch::Receiver<Option<ClusterView>>) -> Self {
        Self {
            inner: Watched::new(receiver),
            last: None,
        }
    }

    /// The next view; none when the silo has stopped for good. Cancel safe.
    pub async fn next(&mut self) -> Option<ClusterView> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Views {
    type Item = ClusterView;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ClusterView>> {
        loop {
            match Pin::new(&mut self.inner).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Some(view)))
                    if self.last != Some((view.version(), view.digest())) =>
                {
                    self.last = Some((view.version(), view.digest()));
                    return Poll::Ready(Some(view));
                }
                Poll::Ready(Some(_)) => {}
            }
        }
    }
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Views")
            .field("last", &self.last.map(|(version, _)| version))
            .finish_non_exhaustive()
    }
}
