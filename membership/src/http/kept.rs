//! Bodies of answers: one that keeps something until the client has taken it, and one of parts.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

/// Keeps something until the client has taken the body, or is gone.
pub(super) struct Kept<T> {
    body: Body,
    _kept: T,
}

impl<T: Send + Unpin + 'static> Kept<T> {
    pub(super) fn until_taken(body: Body, kept: T) -> Body {
        Body::new(Self { body, _kept: kept })
    }
}

impl<T: Unpin> HttpBody for Kept<T> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Several pieces, one after the other.
pub(super) struct Parts(VecDeque<Bytes>);

impl<const N: usize> From<[Bytes; N]> for Parts {
    fn from(parts: [Bytes; N]) -> Self {
        Self(parts.into())
    }
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}
