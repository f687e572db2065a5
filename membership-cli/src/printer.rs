//! Lines from a running silo: written by a thread of their own, because a reader that stands still must not stop the silo.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::out::Out;

/// So many lines wait for a slow reader, and no more bytes than these beside the first line; later ones are dropped until it reads again.
const WAITING: usize = 4096;
const WAITING_BYTES: usize = 32 << 20;
/// How long the end waits for the last lines to be read.
const LAST: Duration = Duration::from_secs(1);

/// Hands lines to the thread that writes them.
pub(crate) struct Printer {
    lines: Option<SyncSender<String>>,
    bytes: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Printer {
    pub fn new(out: Out) -> Self {
        let (lines, waiting) = sync_channel(WAITING);
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
        if waiting > 0 && waiting + size > WAITING_BYTES {
            return;
        }
        self.bytes.fetch_add(size, Relaxed);
        if lines.try_send(line).is_err() {
            self.bytes.fetch_sub(size, Relaxed);
        }
    }

    /// Waits until everything was written, within reason.
    pub fn finish(mut self) {
        self.lines = None;
        let until = Instant::now() + LAST;
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

fn write(mut out: Out, waiting: &Receiver<String>, bytes: &AtomicUsize) {
    // A closed reader is no reason to stop taking lines: the silo runs for the cluster, not for its output.
    while let Ok(line) = waiting.recv() {
        let size = line.len();
        out.line(line);
        bytes.fetch_sub(size, Relaxed);
    }
}
