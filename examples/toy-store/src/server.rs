//! The server: everything in memory, every change in a log, one thread per connection.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::message::{Answer, CELL_BYTES, Cells, DOCUMENT_BYTES, Document, LINE_BYTES, Request};

/// A change as it stands in the log.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    /// Revisions up to this one were given; no start gives them again.
    Revisions {
        given: u64,
    },
    Document {
        name: String,
        revision: u64,
        text: String,
    },
    NoDocument {
        name: String,
    },
    Cell {
        document: String,
        name: String,
        text: String,
    },
    NoCells {
        document: String,
        names: Option<Vec<String>>,
    },
}

#[derive(Default)]
struct State {
    revisions: u64,
    documents: BTreeMap<String, (u64, String)>,
    cells: BTreeMap<String, Cells>,
}

impl State {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Revisions { given } => self.revisions = self.revisions.max(given),
            Change::Document {
                name,
                revision,
                text,
            } => {
                self.revisions = self.revisions.max(revision);
                self.documents.insert(name, (revision, text));
            }
            Change::NoDocument { name } => {
                self.documents.remove(&name);
            }
            Change::Cell {
                document,
                name,
                text,
            } => {
                self.cells.entry(document).or_default().insert(name, text);
            }
            Change::NoCells {
                document,
                names: None,
            } => {
                self.cells.remove(&document);
            }
            Change::NoCells {
                document,
                names: Some(names),
            } => {
                if let Some(cells) = self.cells.get_mut(&document) {
                    cells.retain(|name, _| !names.contains(name));
                }
            }
        }
    }

    /// The changes that lead here from nothing.
    fn changes(&self) -> impl Iterator<Item = Change> {
        let documents = self
            .documents
            .iter()
            .map(|(name, (revision, text))| Change::Document {
                name: name.clone(),
                revision: *revision,
                text: text.clone(),
            });
        let cells = self.cells.iter().flat_map(|(document, cells)| {
            cells.iter().map(|(name, text)| Change::Cell {
                document: document.clone(),
                name: name.clone(),
                text: text.clone(),
            })
        });
        [Change::Revisions {
            given: self.revisions,
        }]
        .into_iter()
        .chain(documents)
        .chain(cells)
    }
}

struct Store {
    state: State,
    log: File,
}

fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

impl Store {
    /// Written and, where it must not be lost, on the disk; then applied.
    fn write(&mut self, change: Change, flush: bool) -> io::Result<()> {
        self.log.write_all(&line(&change)?)?;
        if flush {
            self.log.sync_data()?;
        }
        self.state.apply(change);
        Ok(())
    }

    fn answer(&mut self, request: Request) -> io::Result<Answer> {
        Ok(match request {
            Request::Hello { .. } => Answer::Done,
            Request::Get {
                document: name,
                known,
                cells,
            } => {
                let document = match self.state.documents.get(&name) {
                    None => Document::None,
                    Some((revision, _)) if known == Some(*revision) => Document::Unchanged,
                    Some((revision, text)) => Document::Is {
                        revision: *revision,
                        text: text.clone(),
                    },
                };
                let cells = cells.then(|| self.state.cells.get(&name).cloned().unwrap_or_default());
                Answer::Got {
                    document,
                    cells: cells.unwrap_or_default(),
                }
            }
            Request::Put { text, .. } if text.len() > DOCUMENT_BYTES => Answer::TooLarge,
            Request::Put {
                document: name,
                expected,
                text,
            } => {
                if self
                    .state
                    .documents
                    .get(&name)
                    .map(|(revision, _)| *revision)
                    != expected
                {
                    return Ok(Answer::Put { revision: None });
                }
                let revision = self.state.revisions + 1;
                self.write(
                    Change::Document {
                        name,
                        revision,
                        text,
                    },
                    true,
                )?;
                Answer::Put {
                    revision: Some(revision),
                }
            }
            Request::Remove {
                document: name,
                expected,
            } => {
                let yes = self
                    .state
                    .documents
                    .get(&name)
                    .is_some_and(|(revision, _)| *revision == expected);
                if yes {
                    self.write(Change::NoDocument { name }, true)?;
                }
                Answer::Removed { yes }
            }
            Request::Set { text, .. } if text.len() > CELL_BYTES => Answer::TooLarge,
            Request::Set {
                document,
                cell,
                text,
            } => {
                self.write(
                    Change::Cell {
                        document,
                        name: cell,
                        text,
                    },
                    false,
                )?;
                Answer::Done
            }
            Request::Unset { document, cells } => {
                self.write(
                    Change::NoCells {
                        document,
                        names: cells,
                    },
                    false,
                )?;
                Answer::Done
            }
        })
    }
}

/// A server of what is in one directory.
pub struct Server {
    store: Arc<Mutex<Store>>,
    password: Option<String>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("password", &self.password.as_ref().map(|_| "…"))
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Reads the log in `dir`, which is made where it is missing, and writes it anew without what is outdated. A line that is cut short
    /// at the end was never acknowledged, and goes.
    ///
    /// # Errors
    /// What the file system says; `InvalidData` where the log holds something else than changes.
    pub fn open(dir: &Path, password: Option<String>) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let (path, new) = (dir.join("log"), dir.join("log-new"));
        let mut state = State::default();
        let text = if path.exists() {
            fs::read(&path)?
        } else {
            state.revisions = beginning();
            Vec::new()
        };
        for change in text
            .split_inclusive(|b| *b == b'\n')
            .filter(|line| line.ends_with(b"\n"))
        {
            state.apply(
                serde_json::from_slice(change)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?,
            );
        }
        let mut log = File::create(&new)?;
        for change in state.changes() {
            log.write_all(&line(&change)?)?;
        }
        log.sync_data()?;
        fs::rename(&new, &path)?;
        File::open(dir)?.sync_all()?;
        let log = OpenOptions::new().append(true).open(&path)?;
        Ok(Self {
            store: Arc::new(Mutex::new(Store { state, log })),
            password,
        })
    }

    /// Serves in threads of its own, until the process ends; gives the address it listens on.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn spawn(self, listen: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (store, password) = (self.store.clone(), self.password.clone());
                // A connection ends by an error; there is nobody left to tell.
                std::thread::spawn(move || serve(&stream, &store, password.as_deref()));
            }
        });
        Ok(address)
    }
}

/// After which revision a new store begins: nanoseconds since 1970, so that no store in the same place
/// gives the revisions of the one before it.
fn beginning() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or_default()
}

fn serve(stream: &TcpStream, store: &Mutex<Store>, password: Option<&str>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream);
    let mut welcome = password.is_none();
    loop {
        let mut request = Vec::new();
        (&mut input)
            .take(LINE_BYTES as u64)
            .read_until(b'\n', &mut request)?;
        if !request.ends_with(b"\n") {
            return Ok(());
        }
        let answer = match serde_json::from_slice(&request) {
            Err(e) => Answer::Failed { why: e.to_string() },
            Ok(Request::Hello { password: said }) if !welcome => {
                welcome = password == Some(said.as_str());
                if welcome {
                    Answer::Done
                } else {
                    Answer::Denied
                }
            }
            Ok(_) if !welcome => Answer::Denied,
            // A change that could not be written to the log may be in it: nobody must believe it is not. The connection ends.
            Ok(request) => store
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .answer(request)?,
        };
        (&*stream).write_all(&line(&answer)?)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(server: &Server, expected: Option<u64>, text: &str) -> Option<u64> {
        let request = Request::Put {
            document: "d".to_owned(),
            expected,
            text: text.to_owned(),
        };
        match server.store.lock().unwrap().answer(request).unwrap() {
            Answer::Put { revision } => revision,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_store_made_anew_gives_no_revision_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let revisions = || {
            let server = Server::open(dir.path(), None).unwrap();
            let one = put(&server, None, "one");
            [one, put(&server, one, "two")]
        };
        let before = revisions();
        fs::remove_dir_all(dir.path()).unwrap();
        let after = revisions();
        assert!(
            after.iter().all(|it| !before.contains(it)),
            "{before:?} {after:?}"
        );
    }

    #[test]
    fn what_was_acknowledged_is_there_after_a_start_and_no_revision_comes_twice() {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::open(dir.path(), None).unwrap();
        let one = put(&server, None, "one");
        assert_eq!(put(&server, None, "lost the race"), None);
        let two = put(&server, one, "two");
        drop(server);
        // A line that the server was killed in.
        OpenOptions::new()
            .append(true)
            .open(dir.path().join("log"))
            .unwrap()
            .write_all(b"{\"document\":{\"na")
            .unwrap();
        let server = Server::open(dir.path(), None).unwrap();
        assert_eq!(put(&server, one, "outdated"), None);
        let request = Request::Remove {
            document: "d".to_owned(),
            expected: two.unwrap(),
        };
        assert!(matches!(
            server.store.lock().unwrap().answer(request).unwrap(),
            Answer::Removed { yes: true }
        ));
        drop(server);
        let server = Server::open(dir.path(), None).unwrap();
        assert!(put(&server, None, "anew") > two);
    }
}
