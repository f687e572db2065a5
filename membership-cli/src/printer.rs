//! Output of a running silo: a thread of its own writes the lines, so that a reader that has
//! stopped reading does not stop the silo.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::out::Out;

/// Bounds on what waits for a slow reader: lines, and bytes after the first line. Later lines are
/// dropped until it reads again.
const MAX_LINES: usize = 4096;
const MAX_BYTES: usize = 32 << 20;
/// How long [`Printer::finish`] waits for the reader.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

const QUICK_TIMEOUT: Duration = Duration::from_millis(20);

/// Passes lines to the thread that writes them.
pub(crate) struct Printer {
    lines: Option<SyncSender<String>>,
    bytes: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Printer {
    pub fn new(out: Out) -> Self {
        let (lines, waiting) = sync_channel(MAX_LINES);
        let bytes = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&bytes);
        let thread = std::thread::Builder::new()
            .name("printer".to_owned())
            .spawn(move || write(out, &waiting, &left))
            .ok();
        Self {
            lines: Some(lines),
            bytes,
            thread,
        }
    }

    /// Never waits.
    pub fn line(&self, text: impl std::fmt::Display) {
        let Some(lines) = &self.lines else { return };
        let line = text.to_string();
        let (size, waiting) = (line.len(), self.bytes.load(Relaxed));
        if waiting > 0 && waiting + size > MAX_BYTES {
            return;
        }
        self.bytes.fetch_add(size, Relaxed);
        if lines.try_send(line).is_err() {
            self.bytes.fetch_sub(size, Relaxed);
        }
    }

    /// Waits until everything is written, for a second at most, and for a moment only if `quickly`.
    pub fn finish(mut self, quickly: bool) {
        self.lines = None;
        let most = if quickly {
            QUICK_TIMEOUT
        } else {
            FINISH_TIMEOUT
        };
        let until = Instant::now() + most;
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

fn write(mut out: Out, waiting: &Receiver<String>, bytes: &AtomicUsize) {
    // Lines are taken even if the reader has closed the stream: the silo continues without a
    // reader.
    while let Ok(line) = waiting.recv() {
        let size = line.len();
        out.line(line);
        bytes.fetch_sub(size, Relaxed);
    }
}
