//! `top` without a terminal: keys go in, the screen is read.

use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use membership::admin::ChangeError;
use membership_core::{
    CauseOfDeath, CommitId, Config, Death, Heartbeat, Heartbeats, InstanceId, MembershipEntry,
    Operation, Preset, Row, Rows, SiloAddress, SiloStatus, Snapshot, TableError, TableErrorKind,
    TableId, VersionRow, VersionToken, WallTime,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::app::{App, Mode, Wish};
use super::draw;
use super::screen::Screen;
use crate::inspect::Inspection;

fn now() -> WallTime {
    WallTime::from_millis(1_800_000_000_000)
}

fn silo(n: u16) -> SiloAddress {
    SiloAddress::new([10, 0, 0, 1].into(), 7_000 + n, 1_799_999_000_000)
}

fn active(n: u16) -> MembershipEntry {
    let start = now().minus(Duration::from_secs(60));
    let mut entry = MembershipEntry::new(silo(n), InstanceId::new(u128::from(n)), start);
    entry.status = SiloStatus::Active;
    entry.info.silo_name = format!("silo-{n}");
    entry
}

fn voted(n: u16) -> MembershipEntry {
    let mut entry = active(n);
    entry.status = SiloStatus::Dead;
    entry.death = Some(Death::new(CauseOfDeath::Voted, now(), Some(silo(0)), 2));
    entry
}

fn table(version: u64, entries: impl IntoIterator<Item = MembershipEntry>) -> Inspection {
    let (mut rows, mut heartbeats) = (Rows::new(), Heartbeats::default());
    for entry in entries {
        let heartbeat = Heartbeat {
            counter: 1,
            at: now(),
        };
        heartbeats.silos.insert(entry.address, heartbeat);
        rows.insert(Row::encode(entry));
    }
    let table_id = TableId::new(1);
    let settings = Config::preset(Preset::Lan).shared();
    let mut row = VersionRow::initial(table_id, settings);
    row.version = version;
    let token = VersionToken::new(table_id, version, CommitId::new(1), b"");
    Inspection {
        snapshot: Snapshot::new(token, row, rows),
        heartbeats,
        now: now(),
    }
}

fn app(entries: impl IntoIterator<Item = MembershipEntry>) -> App {
    let mut app = App::new("default".to_owned(), "memory".to_owned(), true);
    app.on_table(table(1, entries));
    app
}

fn screen(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(app, frame)).unwrap();
    let text = terminal.backend().to_string();
    text.replace('"', "")
}

fn press(app: &mut App, keys: &str) -> Option<Wish> {
    let mut wish = None;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        wish = app.on_event(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    wish
}

#[test]
fn a_death_is_on_top_and_in_the_time_line() {
    let mut app = app((0..5).map(active));
    let five: Vec<_> = (0..4).map(active).chain([voted(4)]).collect();
    app.on_table(table(2, five));
    let shown = screen(&mut app, 80, 24);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].contains("4 Active, 1 Dead (1 voted)"), "{shown}");
    assert!(
        lines[3].contains("silo-4") && lines[3].contains("voted"),
        "{shown}"
    );
    let times = lines.iter().any(|l| l.contains("v2") && l.contains("7004"));
    assert!(times, "{shown}");
}

#[test]
fn eighty_columns_and_few_lines_are_enough() {
    let mut app = app((0..1_000).map(active));
    for (width, height) in [(80, 24), (80, 6), (20, 4), (1, 1), (200, 60)] {
        let shown = screen(&mut app, width, height);
        assert!(shown.lines().count() >= usize::from(height), "{shown}");
    }
    assert!(screen(&mut app, 80, 24).contains("10.0.0.1:7000"));
    press(&mut app, "G");
    assert!(screen(&mut app, 80, 24).contains("10.0.0.1:7999"));
}

#[test]
fn the_chosen_silo_stays_chosen() {
    let mut app = app((0..5).map(active));
    press(&mut app, "jj");
    assert_eq!(app.chosen, Some(silo(2)));
    app.on_table(table(2, (1..5).map(active)));
    assert_eq!(app.chosen, Some(silo(2)));
    app.on_table(table(3, [active(1), active(4)]));
    assert_eq!(
        app.chosen,
        Some(silo(4)),
        "its neighbour, once its row is gone"
    );
    app.on_table(table(4, []));
    assert_eq!(app.chosen, None);
    assert!(screen(&mut app, 80, 24).contains("no silo yet"));
    assert_eq!(press(&mut app, "jkGe\n"), None);
}

#[test]
fn a_filter_is_seen_while_it_is_typed() {
    let mut app = app((0..5).map(active));
    press(&mut app, "/silo-3");
    assert_eq!(app.shown, [silo(3)]);
    press(&mut app, "\u{1b}");
    assert_eq!(app.shown.len(), 5);
    press(&mut app, "/status=Dead\n");
    assert!(screen(&mut app, 80, 24).contains("no silo matches"));
    press(&mut app, "\u{1b}");
    assert_eq!(app.shown.len(), 5);
}

#[test]
fn an_eviction_needs_a_reason_and_a_yes() {
    let mut app = app([active(0), voted(1)]);
    press(&mut app, "g");
    assert_eq!(press(&mut app, "e"), None);
    assert!(app.message.as_ref().unwrap().contains("already Dead"));
    press(&mut app, "j");
    assert_eq!(press(&mut app, "e\n\n"), None);
    assert!(
        matches!(app.mode, Mode::Reason(_, _)),
        "no reason, no question"
    );
    assert_eq!(press(&mut app, "disk full\nno\n"), None);
    assert_eq!(app.mode, Mode::Rows);
    let wish = press(&mut app, "edisk full\nyes\n");
    assert_eq!(wish, Some(Wish::Evict(silo(0), "disk full".to_owned())));
}

#[test]
fn a_hostile_name_does_not_reach_the_terminal() {
    let mut entry = active(0);
    entry.info.silo_name = "a\u{1b}[31m\u{202e}b".to_owned();
    let mut app = app([entry]);
    let shown = screen(&mut app, 120, 24);
    press(&mut app, "\n");
    let detail = screen(&mut app, 120, 24);
    for text in [shown, detail] {
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}'),
            "{text}"
        );
    }
}

#[test]
fn keys_end_it_wherever_it_is() {
    for before in ["", "\n", "t", "?"] {
        let mut app = app((0..3).map(active));
        press(&mut app, before);
        assert_eq!(press(&mut app, "q"), Some(Wish::Quit), "{before:?}");
    }
    let mut app = app([active(0)]);
    press(&mut app, "/q");
    let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.on_event(&Event::Key(key)), Some(Wish::Quit));
}

/// What a panic leaves on the terminal is looked at by the test below, which starts this one there.
#[test]
#[ignore = "a_panic_restores_the_terminal starts it on a terminal"]
fn it_panics_on_the_full_screen() {
    let mut screen = Screen::enter().unwrap();
    screen.draw(|_| panic!("staged on purpose")).unwrap();
}

#[cfg(unix)]
#[test]
fn a_panic_restores_the_terminal() {
    use std::io::Read;

    let lines = |n| std::num::NonZero::new(n).unwrap();
    let (mut pty, pts) = pty_process::blocking::open().unwrap();
    pty.resize(pty_process::Size::new(24, 80)).unwrap();
    let me = std::env::current_exe().unwrap();
    let test = "commands::top::tests::it_panics_on_the_full_screen";
    let mut child = pty_process::blocking::Command::new(me)
        .args([
            "--ignored",
            "--exact",
            test,
            "--nocapture",
            "--test-threads",
            "1",
        ])
        .env("RUST_BACKTRACE", "0")
        .spawn(pts)
        .unwrap();
    let mut parser = vt100::Parser::new(lines(24), lines(80), 0);
    let (mut buffer, mut was_full) = ([0; 4096], false);
    // The terminal is closed when the program ends.
    while let Ok(n @ 1..) = pty.read(&mut buffer) {
        for byte in &buffer[..n] {
            parser.process(std::slice::from_ref(byte));
            was_full |= parser.screen().alternate_screen();
        }
    }
    assert!(!child.wait().unwrap().success());
    assert!(was_full && !parser.screen().alternate_screen());
    let said = parser.screen().contents();
    assert!(said.contains("staged on purpose"), "{said}");
}

#[test]
fn an_eviction_that_may_have_happened_is_not_called_undone() {
    let mut app = app([active(0)]);
    let cut = || {
        TableError::new(
            TableErrorKind::OutcomeUnknown,
            Operation::Commit,
            "test",
            "the answer was cut",
        )
    };
    app.on_evicted(silo(0), Err(ChangeError::MayHaveHappened(cut())));
    let said = app.message.clone().unwrap();
    assert!(!said.contains("not evicted"), "{said}");
    assert!(
        said.contains("may be evicted") && said.contains("was cut"),
        "{said}"
    );
    app.on_evicted(silo(0), Err(ChangeError::NotDone(cut())));
    let said = app.message.unwrap();
    assert!(said.contains("was not evicted"), "{said}");
}
