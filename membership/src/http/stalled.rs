//! A connection that is cut when the other side takes nothing for too long, or takes what there is too
//! slowly: such a client holds a socket and what waits for it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::seats::Seat;

/// How long the other side may take nothing.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take until it has all that was written.
const LONGEST: Duration = Duration::from_secs(300);

pub(super) struct Stalled<S> {
    inner: S,
    /// Told when the other side has everything.
    seat: Option<Arc<Seat>>,
    /// Runs while a write waits.
    until: Pin<Box<Sleep>>,
    waits: bool,
    /// Since when there has been something to take.
    since: Option<Instant>,
}

impl<S> Stalled<S> {
    pub(super) fn new(inner: S, seat: Option<Arc<Seat>>) -> Self {
        Self {
            inner,
            seat,
            until: Box::pin(tokio::time::sleep(PATIENCE)),
            waits: false,
            since: None,
        }
    }

    fn bounded<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            let now = Instant::now();
            let last = *self.since.get_or_insert(now) + LONGEST;
            self.until.as_mut().reset(last.min(now + PATIENCE));
        }
        match self.until.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalled<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.bounded(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.since = None;
            if let Some(seat) = &self.seat {
                seat.has_answered();
            }
        }
        self.bounded(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.bounded(cx, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_cut_and_a_slow_one_is_not() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut stalled = Stalled::new(near, None);
        let reading = async {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(15)).await;
                let mut some = [0; 8];
                let _ = tokio::io::AsyncReadExt::read(&mut far, &mut some).await;
            }
        };
        let (written, ()) = tokio::join!(stalled.write_all(&[0; 40]), reading);
        written.unwrap();
        let began = Instant::now();
        let error = stalled.write_all(&[0; 40]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_a_byte_now_and_then_is_cut_in_the_end() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut stalled = Stalled::new(near, None);
        let dripping = async {
            loop {
                tokio::time::sleep(Duration::from_secs(15)).await;
                let _ = tokio::io::AsyncReadExt::read_u8(&mut far).await;
            }
        };
        let began = Instant::now();
        let written = tokio::select! {
            written = stalled.write_all(&[0; 4096]) => written,
            () = dripping => Ok(()),
        };
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= LONGEST && began.elapsed() < LONGEST + PATIENCE);
    }
}
