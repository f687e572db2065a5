//! The client: one connection, one request at a time, made anew when it is lost.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::message::{Answer, Cells, Document, LINE_BYTES, Request};

/// The connection, while no request uses it.
type Place = Arc<Mutex<Option<BufReader<TcpStream>>>>;

/// Why a request has no answer, by what is known of its effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection: the request was not sent.
    #[error("no connection to the toy store")]
    NotConnected(#[source] io::Error),
    /// The connection was lost with the request on its way: it may have been carried out.
    #[error("the connection to the toy store was lost before the answer")]
    Lost(#[source] io::Error),
    /// The password is wrong or missing: nothing was carried out.
    #[error("the toy store refuses the password")]
    Denied,
    /// The document has more than 16 MiB or the cell more than 64 KiB: nothing was written.
    #[error("more than the toy store takes")]
    TooLarge,
    /// The server does not understand the request: nothing was carried out.
    #[error("the toy store refuses the request: {0}")]
    Refused(String),
}

/// A client of a toy store. It connects when it must, has one connection, and sends one request at a time; callers wait for each other.
///
/// Every future may be dropped: the connection is then closed, because its next line would be the answer to somebody else's question.
/// Nothing here ends by itself when the server is silent; that is for the caller.
pub struct Client {
    address: String,
    password: Option<String>,
    place: std::sync::Mutex<Place>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client that will connect to `host:port`.
    #[must_use]
    pub fn new(address: impl Into<String>, password: Option<String>) -> Self {
        Self {
            address: address.into(),
            password,
            place: std::sync::Mutex::default(),
        }
    }

    /// Requests from now on use a new connection. A request under way keeps its own, which is closed after it.
    pub fn reconnect(&self) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Place::default();
    }

    async fn connect(&self) -> Result<BufReader<TcpStream>, Error> {
        let stream = TcpStream::connect(&self.address)
            .await
            .map_err(Error::NotConnected)?;
        stream.set_nodelay(true).map_err(Error::NotConnected)?;
        let mut connection = BufReader::new(stream);
        if let Some(password) = &self.password {
            let hello = Request::Hello {
                password: password.clone(),
            };
            if let Answer::Denied = exchange(&mut connection, &hello)
                .await
                .map_err(Error::NotConnected)?
            {
                return Err(Error::Denied);
            }
        }
        Ok(connection)
    }

    async fn call(&self, request: &Request) -> Result<Answer, Error> {
        let place = self
            .place
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut place = place.lock().await;
        // Taken out: it goes back only with the answer read to its end.
        let mut connection = match place.take() {
            Some(connection) if is_open(&connection) => connection,
            _ => self.connect().await?,
        };
        let answer = exchange(&mut connection, request)
            .await
            .map_err(Error::Lost)?;
        *place = Some(connection);
        match answer {
            Answer::Denied => Err(Error::Denied),
            Answer::TooLarge => Err(Error::TooLarge),
            Answer::Failed { why } => Err(Error::Refused(why)),
            answer => Ok(answer),
        }
    }

    async fn expect<T>(
        &self,
        request: Request,
        read: impl FnOnce(Answer) -> Option<T>,
    ) -> Result<T, Error> {
        let answer = self.call(&request).await?;
        read(answer).ok_or_else(|| {
            Error::Lost(io::Error::new(
                io::ErrorKind::InvalidData,
                "an answer to another question",
            ))
        })
    }

    /// The document, and its cells if asked for, in one request.
    ///
    /// # Errors
    /// [`Error`]
    pub async fn get(
        &self,
        document: &str,
        known: Option<u64>,
        cells: bool,
    ) -> Result<(Document, Cells), Error> {
        let request = Request::Get {
            document: document.to_owned(),
            known,
            cells,
        };
        self.expect(request, |answer| {
            if let Answer::Got { document, cells } = answer {
                Some((document, cells))
            } else {
                None
            }
        })
        .await
    }

    /// Replaces the document where its revision is `expected`, or makes it where there is none; the new revision, or none where
    /// somebody else was first.
    ///
    /// # Errors
    /// [`Error`]
    pub async fn put(
        &self,
        document: &str,
        expected: Option<u64>,
        text: &str,
    ) -> Result<Option<u64>, Error> {
        let request = Request::Put {
            document: document.to_owned(),
            expected,
            text: text.to_owned(),
        };
        self.expect(request, |answer| {
            if let Answer::Put { revision } = answer {
                Some(revision)
            } else {
                None
            }
        })
        .await
    }

    /// Removes the document where its revision is `expected`; whether it did.
    ///
    /// # Errors
    /// [`Error`]
    pub async fn remove(&self, document: &str, expected: u64) -> Result<bool, Error> {
        let request = Request::Remove {
            document: document.to_owned(),
            expected,
        };
        self.expect(request, |answer| {
            if let Answer::Removed { yes } = answer {
                Some(yes)
            } else {
                None
            }
        })
        .await
    }

    /// Overwrites a cell beside the document, whether there is a document or not.
    ///
    /// # Errors
    /// [`Error`]
    pub async fn set(&self, document: &str, cell: &str, text: &str) -> Result<(), Error> {
        let request = Request::Set {
            document: document.to_owned(),
            cell: cell.to_owned(),
            text: text.to_owned(),
        };
        self.expect(request, |answer| {
            matches!(answer, Answer::Done).then_some(())
        })
        .await
    }

    /// Removes these cells, or all.
    ///
    /// # Errors
    /// [`Error`]
    pub async fn unset(&self, document: &str, cells: Option<Vec<String>>) -> Result<(), Error> {
        let request = Request::Unset {
            document: document.to_owned(),
            cells,
        };
        self.expect(request, |answer| {
            matches!(answer, Answer::Done).then_some(())
        })
        .await
    }
}

/// Whether the server has not closed it meanwhile: then a request would be lost that need not be.
fn is_open(connection: &BufReader<TcpStream>) -> bool {
    let end = connection.get_ref().try_read(&mut [0]);
    connection.buffer().is_empty() && matches!(end, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
}

async fn exchange(connection: &mut BufReader<TcpStream>, request: &Request) -> io::Result<Answer> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    connection.get_mut().write_all(&line).await?;
    let mut answer = Vec::new();
    connection
        .take(LINE_BYTES as u64)
        .read_until(b'\n', &mut answer)
        .await?;
    if !answer.ends_with(b"\n") {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&answer)?)
}
