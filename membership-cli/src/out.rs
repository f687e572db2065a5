//! Output: the only module that writes. Lines are flushed one by one and coloured only on a
//! terminal; a closed pipe is not an error.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use crate::text::misleads;

/// How text looks on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Paint {
    #[default]
    Plain,
    Bold,
    Dim,
    Green,
    Yellow,
    Red,
}

/// A stream of lines.
pub(crate) struct Out {
    to: Box<dyn Write + Send>,
    terminal: bool,
    colour: bool,
    /// Whether it is the standard output of the process.
    standard: bool,
    error: Option<io::Error>,
}

impl Out {
    pub fn stdout() -> Self {
        Self {
            standard: true,
            ..Self::stream(Box::new(io::stdout()), io::stdout().is_terminal())
        }
    }

    pub fn stderr() -> Self {
        Self::stream(Box::new(io::stderr()), io::stderr().is_terminal())
    }

    fn stream(to: Box<dyn Write + Send>, terminal: bool) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            to,
            terminal: terminal && !dumb,
            colour: terminal && !dumb && !set("NO_COLOR"),
            standard: false,
            error: None,
        }
    }

    /// Into anything, without colours.
    pub fn plain(to: Box<dyn Write + Send>) -> Self {
        Self {
            to,
            terminal: false,
            colour: false,
            standard: false,
            error: None,
        }
    }

    /// What `write` writes, as text without colours.
    pub fn text(write: impl FnOnce(&mut Self)) -> String {
        let text = Arc::new(Mutex::new(Vec::new()));
        write(&mut Self::plain(Box::new(Text(Arc::clone(&text)))));
        let bytes = text.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// One line, or several that belong together.
    pub fn line(&mut self, text: impl Display) {
        self.raw(format_args!("{text}\n"));
    }

    /// Text as it is, but for characters that mislead, which JSON has from the table: those have an
    /// escape of JSON.
    pub fn raw(&mut self, text: impl Display) {
        if self.error.is_none() {
            let written = self
                .to
                .write_all(harmless(text.to_string()).as_bytes())
                .and_then(|()| self.to.flush());
            self.error = written.err();
        }
    }

    pub const fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Columns and rows of the terminal, if it is one and tells them.
    pub fn size(&self) -> Option<(usize, usize)> {
        if !self.terminal {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        let known = size.ws_col > 0 && size.ws_row > 0;
        known.then(|| (size.ws_col.into(), size.ws_row.into()))
    }

    pub const fn is_coloured(&self) -> bool {
        self.colour
    }

    /// Whether the reader has closed the stream, or the stream cannot be written.
    pub fn is_closed(&self) -> bool {
        self.error.is_some() || (self.standard && reader_has_gone())
    }

    /// Why nothing could be written, unless the reader has closed the stream.
    pub fn error(&self) -> Option<&io::Error> {
        self.error
            .as_ref()
            .filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }

    pub fn paint(&self, paint: Paint, text: impl Display) -> String {
        let code = match paint {
            Paint::Plain => return text.to_string(),
            Paint::Bold => 1,
            Paint::Dim => 2,
            Paint::Green => 32,
            Paint::Yellow => 33,
            Paint::Red => 31,
        };
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_string()
        }
    }
}

/// Whether the reader of a pipe has closed it: who writes nothing would not find out.
fn reader_has_gone() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = io::stdout();
    let mut pipe = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut pipe, Some(&Timespec::default())).is_ok()
        && pipe[0].revents().contains(PollFlags::ERR)
}

/// ASCII that controls (colours, ends of lines) is this program's own: JSON has escaped it.
fn harmless(text: String) -> String {
    let bad = |c: char| (!c.is_ascii() || c == '\u{7f}') && misleads(c);
    if !text.contains(bad) {
        return text;
    }
    let mut safe = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        match bad(c) {
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    safe.push_str(&format!("\\u{unit:04x}"));
                }
            }
            false => safe.push(c),
        }
    }
    safe
}

struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full(io::ErrorKind);
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_not_an_error_but_a_full_disk_is() {
        for (kind, is_error) in [
            (io::ErrorKind::BrokenPipe, false),
            (io::ErrorKind::StorageFull, true),
        ] {
            let mut out = Out::plain(Box::new(Full(kind)));
            out.line("one");
            out.line("two");
            assert!(out.is_closed());
            assert_eq!(out.error().is_some(), is_error);
        }
    }

    #[test]
    fn json_of_others_controls_no_terminal() {
        let name = "\u{9b}31m\u{202e}\u{7f}\u{61c}\u{1b}\u{feff}\u{e0001}";
        let text = Out::text(|out| out.line(serde_json::json!({ "name": name })));
        assert!(!text.trim_end().contains(misleads), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["name"], name);
    }

    #[test]
    fn no_colour_outside_a_terminal() {
        let out = Out::plain(Box::new(Vec::new()));
        assert_eq!(out.paint(Paint::Red, "x"), "x");
    }
}
