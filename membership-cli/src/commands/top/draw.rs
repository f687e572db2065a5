//! How the screen looks.

use membership::words;
use membership_core::{MembershipEntry, SiloStatus};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, TableState, Wrap};

use super::app::{App, Mode};
use crate::commands::status;
use crate::inspect::Inspection;
use crate::rows::{Concern, concern};
use crate::text::{ago, clean};

/// From this width on, and this height, there is room for more columns, and for the last changes.
const WIDE: u16 = 110;
const HIGH: u16 = 18;
/// How many of the last changes are always in sight.
const LAST: u16 = 4;

const HELP: &str = "\
up, down, PageUp, PageDown, Home, End   choose a silo
Enter            all about it: who voted, when, on what evidence
s                next order: worst, silo, name, role, zone, status, started, heartbeat
r                the other way round
/                filter: a part of any field, or status=Active,zone=z1,name=…
Esc              back; without anything open, no filter
t                the changes since this program was started
e                evict the silo; asks why, and for a yes
Ctrl-Z           stand still until the shell's fg
q, Ctrl-C        end";

pub(super) fn draw(app: &mut App, frame: &mut Frame<'_>) {
    let high = frame.area().height >= HIGH;
    let [head, body, last, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(3),
        Constraint::Length(if high { LAST + 1 } else { 0 }),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    heading(app, frame, head);
    match app.mode.clone() {
        Mode::Detail(line) => detail(app, frame, body, line),
        Mode::Times(back) => times(app, frame, body, back),
        _ => rows(app, frame, body),
    }
    if high {
        let block =
            Block::new().title(Line::styled("last changes", app.style(Style::new().bold())));
        let inner = block.inner(last);
        frame.render_widget(block, last);
        changes(app, frame, inner, 0);
    }
    footing(app, frame, foot);
    if app.mode == Mode::Help {
        let area = centred(frame.area(), 84, 11);
        frame.render_widget(Clear, area);
        let help = Paragraph::new(HELP).block(Block::bordered().title("keys"));
        frame.render_widget(help, area);
    }
}

impl App {
    /// A style, or none where colours are not wanted. Bold, dim and reversed text is no colour.
    fn style(&self, style: Style) -> Style {
        if self.colour {
            style
        } else {
            Style {
                fg: None,
                bg: None,
                ..style
            }
        }
    }
}

fn heading(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let mut first = vec![
        Span::styled("membership top", app.style(Style::new().bold())),
        Span::raw(format!(
            "  cluster {} on {}",
            clean(&app.cluster),
            clean(&app.store)
        )),
    ];
    let text = match (&app.trouble, &app.inspection) {
        (Some(error), _) => {
            first.push(Span::styled(
                "  TABLE UNAVAILABLE",
                app.style(Style::new().fg(Color::Red).bold()),
            ));
            Line::styled(error.clone(), app.style(Style::new().fg(Color::Red)))
        }
        (None, Some(inspection)) => Line::raw(status::summary(inspection)),
        (None, None) => Line::raw("reading the table …"),
    };
    let lines = vec![Line::from(first), text];
    frame.render_widget(Paragraph::new(lines), area);
}

fn footing(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let line = match &app.mode {
        Mode::Filter(text) => Line::raw(format!("filter: {text}▏  Enter keeps it, Esc leaves it")),
        Mode::Reason(silo, reason) => Line::styled(
            format!("why is {} evicted? {reason}▏", silo.endpoint()),
            app.style(Style::new().fg(Color::Yellow)),
        ),
        Mode::Confirm(silo, _, yes) => Line::styled(
            format!("{} stops, for good. Type yes: {yes}▏", silo.endpoint()),
            app.style(Style::new().fg(Color::Yellow).bold()),
        ),
        _ => match &app.message {
            Some(message) => Line::styled(message.clone(), app.style(Style::new().bold())),
            None => Line::styled(
                "↑↓ choose  Enter why  s sort  / filter  t times  e evict  ? keys  q end",
                Style::new().add_modifier(Modifier::DIM),
            ),
        },
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn rows(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    app.page = usize::from(area.height.saturating_sub(1)).max(1);
    let Some(inspection) = &app.inspection else {
        return;
    };
    let wide = area.width >= WIDE;
    let at = app.place();
    // Only what fits on the screen is made.
    let first = at.unwrap_or(0).saturating_sub(app.page / 2);
    let first = first.min(app.shown.len().saturating_sub(app.page));
    let shown = app.shown.iter().skip(first).take(app.page);
    let entries = shown.filter_map(|silo| inspection.snapshot.rows.get(silo));
    let rows: Vec<Row<'_>> = entries.map(|e| row(app, inspection, e, wide)).collect();
    let (heading, widths) = columns(wide);
    let heading = Row::new(heading).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(rows, widths)
        .header(heading)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default();
    state.select(at.map(|at| at - first));
    frame.render_stateful_widget(table, area, &mut state);
    if app.shown.is_empty() {
        let text = match inspection.snapshot.rows.entries().next() {
            Some(_) => "no silo matches the filter; Esc shows all",
            None => "no silo yet",
        };
        let below = Rect {
            y: area.y + 1,
            height: area.height.saturating_sub(1),
            ..area
        };
        frame.render_widget(Paragraph::new(text), below);
    }
}

fn columns(wide: bool) -> (Vec<&'static str>, Vec<Constraint>) {
    let mut columns = vec![
        ("SILO", Constraint::Length(if wide { 30 } else { 21 })),
        ("NAME", Constraint::Length(if wide { 18 } else { 12 })),
    ];
    if wide {
        columns.push(("ROLE", Constraint::Length(10)));
        columns.push(("ZONE", Constraint::Length(10)));
    }
    columns.extend([
        ("STATUS", Constraint::Length(12)),
        ("HEARTBEAT", Constraint::Length(if wide { 20 } else { 11 })),
        ("WHAT", Constraint::Min(10)),
    ]);
    columns.into_iter().unzip()
}

fn row<'a>(app: &App, inspection: &Inspection, entry: &MembershipEntry, wide: bool) -> Row<'a> {
    let concern = concern(entry, inspection);
    let dead = entry.status == SiloStatus::Dead;
    let beat = inspection.heartbeats.silos.get(&entry.address);
    let heartbeat = match beat {
        Some(beat) => ago(beat.at, app.now),
        None if dead => String::new(),
        None => "none yet".to_owned(),
    };
    let silo = if wide {
        entry.address.to_string()
    } else {
        entry.address.endpoint().to_string()
    };
    let mut cells = vec![silo, clean(&entry.info.silo_name)];
    if wide {
        cells.extend([clean(&entry.info.role), clean(&entry.info.zone)]);
    }
    cells.extend([
        entry.status.to_string(),
        heartbeat,
        what(entry, inspection, concern),
    ]);
    Row::new(cells).style(app.style(look(concern)))
}

/// Colours by meaning: what needs a person stands out, what is over is quiet.
fn look(concern: Concern) -> Style {
    match concern {
        Concern::Suspected | Concern::Stale => Style::new().fg(Color::Yellow),
        Concern::Lost => Style::new().fg(Color::Red).bold(),
        Concern::Changing => Style::new().fg(Color::Cyan),
        Concern::Fine => Style::new(),
        Concern::Gone => Style::new().add_modifier(Modifier::DIM),
    }
}

fn what(entry: &MembershipEntry, inspection: &Inspection, concern: Concern) -> String {
    match concern {
        Concern::Lost | Concern::Gone => status::ending(entry, inspection),
        _ if !entry.suspicions.is_empty() => format!("suspected by {}", words::suspected(entry)),
        Concern::Stale => "stale: it writes no heartbeats".to_owned(),
        _ => String::new(),
    }
}

fn detail(app: &mut App, frame: &mut Frame<'_>, area: Rect, line: u16) {
    app.page = usize::from(area.height.saturating_sub(2)).max(1);
    let text = app.detail();
    let count = u16::try_from(text.lines().count()).unwrap_or(u16::MAX);
    let line = line.min(count.saturating_sub(1));
    app.mode = Mode::Detail(line);
    let block = Block::bordered().title("why (Esc goes back)");
    let text = Paragraph::new(text)
        .wrap(Wrap { trim: false })
        .scroll((line, 0))
        .block(block);
    frame.render_widget(text, area);
}

fn times(app: &mut App, frame: &mut Frame<'_>, area: Rect, back: usize) {
    app.page = usize::from(area.height.saturating_sub(2)).max(1);
    let title = format!(
        "changes since the start: {} (Esc goes back)",
        app.changes.len()
    );
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    changes(app, frame, inner, back);
}

/// The changes up to the last but `back`, the latest at the bottom.
fn changes(app: &App, frame: &mut Frame<'_>, area: Rect, back: usize) {
    let end = app.changes.len().saturating_sub(back);
    let begin = end.saturating_sub(usize::from(area.height));
    let lines: Vec<Line<'_>> = app
        .changes
        .range(begin..end)
        .map(|change| {
            let style = match change.died {
                true => app.style(Style::new().fg(Color::Red)),
                false => Style::new(),
            };
            Line::styled(change.text.clone(), style)
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    }
}
