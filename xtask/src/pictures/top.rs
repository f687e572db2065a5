//! `membership top`, as it looks on a terminal, over five silos of which one was killed.

use std::io::{BufRead, BufReader, Read as _};
use std::num::NonZero;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use pty_process::Size;
use pty_process::blocking;
use vt100::{Cell, Color, Parser};

use super::svg::{self, Picture, Run};
use crate::Failure;

const ROWS: NonZero<u16> = NonZero::new(18).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(100).unwrap();
/// The first of five.
const PORT: u16 = 7101;
/// How long the silos may take to start, and to find out about the killed one.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends with this.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts silos and `top`, kills one, and draws the screen that shows its death.
pub(super) fn draw(program: &Path) -> Result<String, Failure> {
    let folder = tempfile::tempdir()?;
    let table = format!("sqlite:{}", folder.path().join("membership.db").display());
    let mut silos = Vec::new();
    for n in 0..5_u16 {
        silos.push(silo(program, &table, n)?);
    }
    for silo in &mut silos {
        is_active(silo)?;
    }
    let (pty, pts) = blocking::open().map_err(cannot)?;
    pty.resize(Size::new(ROWS.get(), COLUMNS.get()))
        .map_err(cannot)?;
    let top = blocking::Command::new(program)
        .args(["top", "--every", "200ms", "--table", &table])
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .spawn(pts)
        .map_err(cannot)?;
    let _top = Process(top);
    let (send, shown) = channel();
    std::thread::spawn(move || {
        let (mut pty, mut buffer) = (&pty, [0; 4096]);
        while let Ok(n @ 1..) = pty.read(&mut buffer) {
            if send.send(buffer[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut screen = Parser::new(ROWS, COLUMNS, 0);
    let mut until = |text: &str| {
        let end = Instant::now() + PATIENCE;
        while !screen.screen().contents().contains(text) {
            match shown.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => screen.process(&bytes),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let text = format!("`top` never showed {text}");
                    return Err(Failure::new(text));
                }
            }
        }
        Ok(())
    };
    until("5 Active")?;
    drop(silos.remove(2));
    until("1 Dead")?;
    // Later than the row, its heading and its time line.
    until("voted 2 s ago")?;
    Ok(picture(screen.screen()))
}

fn cannot(error: pty_process::Error) -> Failure {
    Failure::new(format!("there is no terminal for `top`: {error}"))
}

fn silo(program: &Path, table: &str, n: u16) -> Result<Process, Failure> {
    let (listen, name) = (format!("127.0.0.1:{}", PORT + n), format!("silo-{n}"));
    let zone = format!("z{}", n % 3);
    let mut silo = Command::new(program);
    silo.args(["silo", "--json", "--preset", "local", "--exit-with-stdin"])
        .args(["--table", table, "--listen", &listen, "--name", &name])
        .args(["--zone", &zone, "--role", "worker"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Ok(Process(silo.spawn()?))
}

/// Waits until the silo says that it is Active.
fn is_active(silo: &mut Process) -> Result<(), Failure> {
    let out = silo.0.stdout.take();
    let mut lines = BufReader::new(out.ok_or_else(|| Failure::new("a silo without output"))?);
    let mut line = String::new();
    while !line.contains("\"event\":\"active\"") {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Err(Failure::new("a silo did not start; nothing is drawn"));
        }
    }
    // The rest is of no interest, and must not fill the pipe.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    Ok(())
}

fn picture(screen: &vt100::Screen) -> String {
    let mut picture = Picture::new(COLUMNS.get().into());
    for row in 0..ROWS.get() {
        picture.line(&runs(screen, row), "");
    }
    picture
        .finish("membership top: four silos are Active, and one is Dead because it was voted out")
}

/// A row of the screen, split where its look changes.
fn runs(screen: &vt100::Screen, row: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..COLUMNS.get() {
        let Some(cell) = screen.cell(row, column) else {
            continue;
        };
        let text = match cell.contents() {
            "" => " ",
            text => text,
        };
        let (colour, bold, reversed) = (colour(cell), cell.bold(), cell.inverse());
        match runs.last_mut() {
            Some(run) if (run.colour, run.bold, run.reversed) == (colour, bold, reversed) => {
                run.text.push_str(text);
            }
            _ => runs.push(Run {
                column: column.into(),
                text: text.to_owned(),
                colour,
                bold,
                reversed,
            }),
        }
    }
    runs
}

fn colour(cell: &Cell) -> &'static str {
    match cell.fgcolor() {
        Color::Idx(1 | 9) => svg::RED,
        Color::Idx(2 | 10) => svg::GREEN,
        Color::Idx(3 | 11) => svg::YELLOW,
        Color::Idx(6 | 14) => svg::CYAN,
        _ if cell.dim() => svg::QUIET,
        _ => svg::PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_where_its_look_changes() {
        let mut parser = Parser::new(ROWS, COLUMNS, 0);
        parser.process(b"ab \x1b[31;1mred\x1b[0m\x1b[7mback\x1b[0m");
        let runs = runs(parser.screen(), 0);
        let looks: Vec<_> = runs
            .iter()
            .map(|r| (r.column, r.text.trim_end(), r.colour, r.bold, r.reversed))
            .collect();
        assert_eq!(
            looks,
            [
                (0, "ab", svg::PLAIN, false, false),
                (3, "red", svg::RED, true, false),
                (6, "back", svg::PLAIN, false, true),
                (10, "", svg::PLAIN, false, false),
            ]
        );
    }
}
