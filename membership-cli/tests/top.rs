//! `membership top` on a terminal: what is on the screen, and that the terminal is whole again
//! however it ends.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test"
)]

mod support;

use std::io::{Read, Write};
use std::num::NonZero;
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};
use rustix::process::{Pid, Signal, kill_process};
use support::silos::{Process, port};
use support::{Place, active, secs};

fn lines(n: u16) -> NonZero<u16> {
    NonZero::new(n).unwrap()
}

/// The program in a terminal of its own.
struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    seen: Arc<(Mutex<vt100::Parser>, Condvar)>,
}

impl Terminal {
    fn start(place: &Place, args: &[&str]) -> Self {
        Self::run(place, support::PROGRAM, args)
    }

    fn run(place: &Place, program: &str, args: &[&str]) -> Self {
        let (pty, pts) = open().unwrap();
        pty.resize(Size::new(24, 80)).unwrap();
        let usual = place.command(args);
        let mut command = Command::new(program)
            .args(args)
            .env_remove("NO_COLOR")
            .env("TERM", "xterm-256color");
        for (name, value) in usual.get_envs() {
            if let Some(value) = value {
                command = command.env(name, value);
            }
        }
        let child = command.spawn(pts).unwrap();
        let pty = Arc::new(pty);
        let seen = Arc::new((
            Mutex::new(vt100::Parser::new(lines(24), lines(80), 0)),
            Condvar::new(),
        ));
        let (reads, shows) = (Arc::clone(&pty), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = (&*reads).read(&mut buffer) {
                shows.0.lock().unwrap().process(&buffer[..n]);
                shows.1.notify_all();
            }
        });
        Self { pty, child, seen }
    }

    fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&self, rows: u16, columns: u16) {
        let mut parser = self.seen.0.lock().unwrap();
        parser.screen_mut().set_size(lines(rows), lines(columns));
        self.pty.resize(Size::new(rows, columns)).unwrap();
    }

    /// Waits until the screen is like this; its text.
    #[track_caller]
    fn shows(&self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) -> String {
        let until = Instant::now() + secs(30);
        let mut parser = self.seen.0.lock().unwrap();
        loop {
            let screen = parser.screen();
            if is_so(screen) {
                return screen.contents();
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not {what}:\n{}", screen.contents());
            parser = self.seen.1.wait_timeout(parser, left).unwrap().0;
        }
    }

    #[track_caller]
    fn shows_text(&self, text: &str) -> String {
        self.shows(text, |screen| screen.contents().contains(text))
    }

    /// Waits for the end of the program, and checks that the screen is the one from before.
    #[track_caller]
    fn ends_well(mut self, code: Option<i32>) {
        let until = Instant::now() + secs(30);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), code);
        self.shows("restored", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor()
        });
        let modes = rustix::termios::tcgetattr(&*self.pty).unwrap().local_modes;
        let usual = rustix::termios::LocalModes::ICANON | rustix::termios::LocalModes::ECHO;
        assert!(
            modes.contains(usual),
            "keys are shown and lines edited again: {modes:?}"
        );
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_killed_silo_is_seen_and_explained() {
    let place = Place::new();
    let mut silos: Vec<Process> = (0..5)
        .map(|_| Process::start(&place, port(), "local", &[]))
        .collect();
    for silo in &silos {
        silo.sees_active(5, secs(60));
    }
    let top = Terminal::start(&place, &["top", "--every", "100ms"]);
    top.shows_text("5 Active");
    let victim = silos.remove(2);
    victim.signal(Signal::KILL);
    let shown = top.shows_text("1 Dead (1 voted)");
    let row = shown.lines().nth(3).unwrap();
    let address = format!("127.0.0.1:{}", victim.port);
    assert!(row.contains(&address) && row.contains("voted"), "{shown}");
    top.press("\r");
    top.shows_text("voted that it does not answer");
    top.resize(40, 140);
    top.shows_text("is Dead, voted");
    top.press("\u{1b}");
    top.shows_text("HEARTBEAT");
    top.press("q");
    top.ends_well(Some(0));
}

#[test]
fn a_key_pressed_while_the_size_changes_counts_at_once() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7104)]);
    let top = Terminal::start(&place, &["top", "--every", "1h"]);
    top.shows_text("1 Active");
    let help = "back; without anything open";
    for round in 0..200 {
        // There and back: the size is the same again when the program looks.
        top.resize(25, 80);
        top.resize(24, 80);
        std::thread::sleep(Duration::from_micros(round % 50 * 10));
        top.press("?");
        top.shows_text(help);
        top.resize(25, 80);
        std::thread::sleep(Duration::from_micros(round % 50 * 10));
        top.press("\u{1b}");
        // The last line is drawn last: while the whole screen is drawn anew, there is no help on it either, and the program would
        // take the two keys as one.
        top.shows("no help", |screen| {
            let text = screen.contents();
            text.contains("q end") && !text.contains(help)
        });
        top.resize(24, 80);
    }
    top.press("q");
    top.ends_well(Some(0));
}

#[test]
fn a_thousand_rows_and_an_eviction() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, (0..1_000).map(|n| active(10_000 + n)).collect());
    let top = Terminal::start(&place, &["top", "--sort", "silo", "--every", "200ms"]);
    top.shows_text("127.0.0.1:10000");
    top.press("G");
    top.shows_text("127.0.0.1:10999");
    top.press("/silo-10500\r");
    top.shows("one row", |screen| {
        let text = screen.contents();
        text.contains("127.0.0.1:10500") && !text.contains("127.0.0.1:10999")
    });
    top.press("e");
    top.shows_text("why is 127.0.0.1:10500");
    top.press("disk full\r");
    top.shows_text("Type yes");
    top.press("yes\r");
    top.shows_text("Dead, evicted by");
    // Ctrl-C, as the terminal sends it to a program that reads every key.
    top.press("\u{3}");
    top.ends_well(Some(0));
    let entry = place.entry(&table, support::silo(10_500)).unwrap();
    assert_eq!(entry.death.unwrap().cause.as_str(), "evicted");
}

#[test]
fn a_signal_and_a_lost_table_restore_the_terminal() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7100)]);
    let top = Terminal::start(&place, &["top", "--every", "50ms"]);
    top.shows_text("1 Active");
    kill_process(Pid::from_child(&top.child), Signal::TERM).unwrap();
    top.ends_well(Some(0));
    let top = Terminal::start(&place, &["top", "--every", "50ms"]);
    top.shows_text("1 Active");
    place
        .run(&["delete", "--yes", "--cluster", "default"])
        .expect(0);
    top.ends_well(Some(6));
}

/// The only child of a process.
#[cfg(target_os = "linux")]
fn child_of(parent: u32) -> Pid {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(path).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

/// The shell writes where the screen was, and sets the terminal as it likes.
#[cfg(target_os = "linux")]
#[test]
fn a_shell_can_stop_it_and_let_it_go_on() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7100)]);
    let shell = Terminal::run(&place, "sh", &["-i"]);
    shell.press(&format!("{} top --every 50ms\n", support::PROGRAM));
    let is_shown = |screen: &vt100::Screen| {
        screen.alternate_screen() && screen.hide_cursor() && screen.contents().contains("1 Active")
    };
    let is_gone = |screen: &vt100::Screen| !screen.alternate_screen() && !screen.hide_cursor();
    shell.shows("the screen", is_shown);
    let top = child_of(shell.child.id());
    for way in ["key", "TSTP", "STOP"] {
        match way {
            "key" => shell.press("\x1a"),
            "TSTP" => kill_process(top, Signal::TSTP).unwrap(),
            _ => kill_process(top, Signal::STOP).unwrap(),
        }
        // Before the shell says that, the program still takes what is typed.
        let stopped = |screen: &vt100::Screen| screen.contents().matches("topped").count();
        match way {
            "key" => shell.shows("the usual screen", |s| is_gone(s) && stopped(s) == 1),
            "TSTP" => shell.shows("the usual screen", |s| is_gone(s) && stopped(s) == 2),
            _ => shell.shows("the shell", |s| stopped(s) > 0),
        };
        shell.press(&format!("echo seen-$((40+2))-{way}\n"));
        shell.shows_text(&format!("seen-42-{way}"));
        shell.press("fg\n");
        shell.shows("the screen again", |screen| {
            is_shown(screen) && !screen.contents().contains("seen-")
        });
        shell.press("?");
        shell.shows_text("evict the silo; asks why");
        shell.press("\x1b");
        shell.shows("the rows", |screen| {
            is_shown(screen) && !screen.contents().contains("asks why")
        });
    }
    shell.press("q");
    shell.shows("the usual screen", is_gone);
    let until = Instant::now() + secs(30);
    while rustix::process::test_kill_process(top).is_ok() {
        assert!(Instant::now() < until, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    shell.press("exit\n");
    shell.ends_well(Some(0));
}

#[test]
fn watch_shows_what_changed_since_it_started() {
    let place = Place::new();
    let table = place.initialize();
    place.insert(&table, vec![active(7101)]);
    let watch = Terminal::start(&place, &["watch", "--every", "50ms"]);
    let shown = watch.shows_text("1 Active");
    assert!(!shown.contains("last changes"), "{shown}");
    place.insert(&table, vec![active(7102)]);
    let shown = watch.shows_text("version 2  127.0.0.1:7102");
    assert!(shown.contains("last changes"), "{shown}");
    // They stay while the table is drawn again, and the rows with them.
    place.insert(&table, vec![active(7103)]);
    let shown = watch.shows_text("version 3  127.0.0.1:7103");
    assert!(shown.contains("version 2  127.0.0.1:7102"), "{shown}");
    assert!(shown.contains("3 Active"), "{shown}");
}

#[test]
fn without_a_terminal_it_is_watch() {
    let place = Place::new();
    place.initialize();
    let mut child = place.command(&["top", "--every", "50ms"]).spawn().unwrap();
    let mut err = child.stderr.take().unwrap();
    let mut first = [0; 40];
    err.read_exact(&mut first).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(String::from_utf8_lossy(&first).starts_with("this is no terminal"));
}
