//! What each key does.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use membership_core::SiloStatus;

use super::app::{App, Mode, Wish};
use crate::rows::Filter;

/// Rows from one end to the other.
const FAR: isize = isize::MAX / 2;
/// The longest text that is typed.
const LONGEST: usize = 500;

impl App {
    /// Handles a key, or a new size of the screen.
    pub fn on_event(&mut self, event: &Event) -> Option<Wish> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.on_key(*key),
            _ => None,
        }
    }

    fn on_key(&mut self, key: KeyEvent) -> Option<Wish> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd') => Some(Wish::Quit),
                KeyCode::Char('z') => Some(Wish::Pause),
                _ => None,
            };
        }
        self.message = None;
        match std::mem::replace(&mut self.mode, Mode::Rows) {
            Mode::Rows => return self.on_row_key(key.code),
            Mode::Detail(line) => {
                let page = u16::try_from(self.page).unwrap_or(u16::MAX);
                match key.code {
                    KeyCode::Char('q') => return Some(Wish::Quit),
                    KeyCode::Esc | KeyCode::Enter | KeyCode::Left => {}
                    KeyCode::Down | KeyCode::Char('j') => {
                        self.mode = Mode::Detail(line.saturating_add(1))
                    }
                    KeyCode::Up | KeyCode::Char('k') => {
                        self.mode = Mode::Detail(line.saturating_sub(1))
                    }
                    KeyCode::PageDown | KeyCode::Char(' ') => {
                        self.mode = Mode::Detail(line.saturating_add(page))
                    }
                    KeyCode::PageUp => self.mode = Mode::Detail(line.saturating_sub(page)),
                    KeyCode::Home => self.mode = Mode::Detail(0),
                    KeyCode::Char('e') => self.ask_reason(),
                    _ => self.mode = Mode::Detail(line),
                }
            }
            Mode::Times(back) => match key.code {
                KeyCode::Char('q') => return Some(Wish::Quit),
                KeyCode::Esc | KeyCode::Enter | KeyCode::Char('t') => {}
                code => {
                    let most = self.changes.len().saturating_sub(1);
                    let back = match code {
                        KeyCode::Up | KeyCode::Char('k') => back + 1,
                        KeyCode::Down | KeyCode::Char('j') => back.saturating_sub(1),
                        KeyCode::PageUp => back + self.page,
                        KeyCode::PageDown => back.saturating_sub(self.page),
                        KeyCode::Home => most,
                        KeyCode::End => 0,
                        _ => back,
                    };
                    self.mode = Mode::Times(back.min(most));
                }
            },
            Mode::Filter(mut text) => match key.code {
                KeyCode::Esc => {
                    self.filter = Filter::typed(&self.typed);
                    self.arrange();
                }
                KeyCode::Enter => {
                    self.typed = text;
                    self.filter = Filter::typed(&self.typed);
                    self.arrange();
                }
                code => {
                    edit(&mut text, code);
                    self.filter = Filter::typed(&text);
                    self.mode = Mode::Filter(text);
                    self.arrange();
                }
            },
            Mode::Reason(silo, mut reason) => match key.code {
                KeyCode::Esc => self.message = Some("nothing was done".to_owned()),
                KeyCode::Enter if !reason.trim().is_empty() => {
                    self.mode = Mode::Confirm(silo, reason, String::new());
                }
                code => {
                    edit(&mut reason, code);
                    self.mode = Mode::Reason(silo, reason);
                }
            },
            Mode::Confirm(silo, reason, mut yes) => match key.code {
                KeyCode::Enter if yes.trim().eq_ignore_ascii_case("yes") => {
                    self.message = Some(format!("evicting {silo} …"));
                    return Some(Wish::Evict(silo, reason));
                }
                KeyCode::Esc | KeyCode::Enter => {
                    self.message = Some("not confirmed, so nothing was done".to_owned());
                }
                code => {
                    edit(&mut yes, code);
                    self.mode = Mode::Confirm(silo, reason, yes);
                }
            },
            Mode::Help => {
                if key.code == KeyCode::Char('q') {
                    return Some(Wish::Quit);
                }
            }
        }
        None
    }

    fn on_row_key(&mut self, key: KeyCode) -> Option<Wish> {
        let page = isize::try_from(self.page).unwrap_or(FAR);
        match key {
            KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.move_by(page),
            KeyCode::PageUp => self.move_by(-page),
            KeyCode::Home | KeyCode::Char('g') => self.move_by(-FAR),
            KeyCode::End | KeyCode::Char('G') => self.move_by(FAR),
            KeyCode::Enter | KeyCode::Right => self.mode = Mode::Detail(0),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.arrange();
            }
            KeyCode::Char('r') => {
                self.reversed = !self.reversed;
                self.arrange();
            }
            KeyCode::Char('/' | 'f') => self.mode = Mode::Filter(self.typed.clone()),
            KeyCode::Esc => {
                self.typed.clear();
                self.filter = Filter::default();
                self.arrange();
            }
            KeyCode::Char('t') => self.mode = Mode::Times(0),
            KeyCode::Char('e') => self.ask_reason(),
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            _ => {}
        }
        None
    }

    fn ask_reason(&mut self) {
        let chosen = self.chosen.and_then(|silo| self.entry(&silo));
        match chosen.map(|entry| (entry.address, entry.status)) {
            Some((silo, SiloStatus::Dead)) => {
                self.message = Some(format!("{silo} is already Dead; Enter shows why"));
            }
            Some((silo, _)) => self.mode = Mode::Reason(silo, String::new()),
            None => self.message = Some("there is no silo to evict".to_owned()),
        }
    }
}

fn edit(text: &mut String, key: KeyCode) {
    match key {
        KeyCode::Backspace => {
            text.pop();
        }
        KeyCode::Char(c) if text.chars().count() < LONGEST => text.push(c),
        _ => {}
    }
}
