//! The bytes of one connection: plain, or within TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// The most bytes that are taken from somebody who has not proven who it is: a TLS handshake with
/// raw keys and a hello together have about 1 KiB.
pub(super) const MAX_FROM_STRANGERS: usize = 4096;
/// The same where certificates are shown, which have a few KiB each.
const MAX_WITH_CERTIFICATES: usize = 32 * 1024;

/// A TCP connection that ends when a stranger sends too much. It counts what the system received,
/// below TLS.
#[derive(Debug)]
pub(super) struct Metered {
    inner: TcpStream,
    left: usize,
}

impl Metered {
    pub(super) fn new(inner: TcpStream, shows_certificates: bool) -> Self {
        // Without this option a probe may wait for the acknowledgement of the one before. The
        // transport also works on a system that does not support it.
        let _ = inner.set_nodelay(true);
        Self {
            inner,
            left: if shows_certificates {
                MAX_WITH_CERTIFICATES
            } else {
                MAX_FROM_STRANGERS
            },
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other(
                "it sent too much before it proved who it is",
            )));
        }
        if self.left == usize::MAX {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let most = self.left.min(buf.remaining());
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buf.advance(read);
        self.left -= read;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The bytes of one connection.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Metered),
    Secured(Box<TlsStream<Metered>>),
}

impl Stream {
    /// The peer has proven who it is: it may send as much as it likes.
    pub(super) fn trust(&mut self) {
        match self {
            Self::Plain(stream) => stream.left = usize::MAX,
            Self::Secured(stream) => stream.get_mut().0.left = usize::MAX,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Secured(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Secured(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Secured(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Secured(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn not_a_byte_more_of_a_stranger_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let mut stranger = TcpStream::connect(to).await.unwrap();
        stranger
            .write_all(&[0; 3 * MAX_FROM_STRANGERS])
            .await
            .unwrap();
        let mut metered = Metered::new(listener.accept().await.unwrap().0, false);
        let (mut taken, mut part) = (0, [0; 3000]);
        while let Ok(read) = metered.read(&mut part).await {
            taken += read;
        }
        assert_eq!(taken, MAX_FROM_STRANGERS);
    }
}
