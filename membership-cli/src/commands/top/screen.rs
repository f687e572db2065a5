//! The terminal: the full screen, which is restored however the program ends, and the keyboard.

use std::io::{self, Stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crossterm::cursor::{Hide, Show};
use crossterm::event::{self, Event};
use crossterm::execute;
use crossterm::terminal::{self, EnterAlternateScreen};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::pause;

/// How long the thread that reads the keyboard waits before it looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);

/// The full screen. Dropping it, a panic and an error restore what was there before.
pub(super) struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    pub fn enter() -> io::Result<Self> {
        let entered = ratatui::try_init();
        if entered.is_err() {
            ratatui::restore();
        }
        entered.map(Self)
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(draw).map(drop)
    }

    /// Gives the terminal back, stands still until a shell lets the program go on, and takes the terminal again.
    pub fn pause(&mut self) -> io::Result<()> {
        if !pause::can_stop() {
            return Ok(());
        }
        ratatui::try_restore()?;
        execute!(io::stdout(), Show)?;
        pause::stop()?;
        self.take()
    }

    /// Takes the terminal again after a stop, whatever the shell has made of it, and draws everything anew.
    pub fn take(&mut self) -> io::Result<()> {
        // The terminal is not as it was left, though the library believes that.
        terminal::disable_raw_mode()?;
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        // Not `clear`, which asks the terminal where the cursor is: the keyboard's thread would take the answer.
        let size = self.0.size()?;
        self.resized(size.width, size.height)
    }

    /// The size has changed: what the terminal made of its content is not known, even where it has the old size again, so the
    /// next picture is drawn whole.
    pub fn resized(&mut self, columns: u16, rows: u16) -> io::Result<()> {
        self.0.resize(Rect::new(0, 0, columns, rows))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A panic has restored it already, and its message must not be written over.
        if !std::thread::panicking() {
            ratatui::restore();
        }
    }
}

/// Keys and changes of the screen's size.
pub(super) struct Keys {
    events: UnboundedReceiver<Event>,
    ended: Arc<AtomicBool>,
}

impl Keys {
    pub fn listen() -> io::Result<Self> {
        let (send, events) = unbounded_channel();
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        std::thread::Builder::new()
            .name("keyboard".to_owned())
            .spawn(move || {
                while !end.load(Relaxed) {
                    match event::poll(LOOK) {
                        Ok(false) => {}
                        Ok(true) => {
                            let Ok(event) = event::read() else { return };
                            if send.send(event).is_err() {
                                return;
                            }
                        }
                        // The terminal is gone.
                        Err(_) => return,
                    }
                }
            })?;
        Ok(Self { events, ended })
    }

    /// The next one; none = the terminal is gone. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
    }
}
