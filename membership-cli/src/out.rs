//! The only place that writes: lines, flushed one by one, coloured only for a terminal; a reader that went away is no reason to fail.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// How a word looks on a terminal.
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
    trouble: Option<io::Error>,
}

impl Out {
    pub fn stdout() -> Self {
        Self::stream(Box::new(io::stdout()), io::stdout().is_terminal())
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
            trouble: None,
        }
    }

    /// Into anything, without colours.
    pub fn plain(to: Box<dyn Write + Send>) -> Self {
        Self {
            to,
            terminal: false,
            colour: false,
            trouble: None,
        }
    }

    /// One line, or several that belong together.
    pub fn line(&mut self, text: impl Display) {
        self.raw(format_args!("{text}\n"));
    }

    /// Text as it is.
    pub fn raw(&mut self, text: impl Display) {
        if self.trouble.is_none()
            && let Err(error) = self
                .to
                .write_all(text.to_string().as_bytes())
                .and_then(|()| self.to.flush())
        {
            self.trouble = Some(error);
        }
    }

    pub const fn is_terminal(&self) -> bool {
        self.terminal
    }

    pub const fn is_coloured(&self) -> bool {
        self.colour
    }

    /// Nobody reads any more, or nothing can be written.
    pub const fn is_closed(&self) -> bool {
        self.trouble.is_some()
    }

    /// Why nothing could be written, unless it is only that nobody reads any more.
    pub fn trouble(&self) -> Option<&io::Error> {
        self.trouble
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
    fn a_reader_that_left_is_no_trouble_and_a_full_disk_is() {
        for (kind, trouble) in [
            (io::ErrorKind::BrokenPipe, false),
            (io::ErrorKind::StorageFull, true),
        ] {
            let mut out = Out::plain(Box::new(Full(kind)));
            out.line("one");
            out.line("two");
            assert!(out.is_closed());
            assert_eq!(out.trouble().is_some(), trouble);
        }
    }

    #[test]
    fn no_colour_outside_a_terminal() {
        let out = Out::plain(Box::new(Vec::new()));
        assert_eq!(out.paint(Paint::Red, "x"), "x");
    }
}
