//! Which bytes belong to which flight, and which flight a fault waits for. No input or output: told what passes, it says what to do.
//!
//! A flight is what a client sends until it hears an answer, and that answer. Whatever a client says before it has heard anything, on
//! one connection or on several, is one flight; what it says afterwards on a connection that was answered is the next.

use std::collections::BTreeMap;

use crate::fault::{Fault, Stage, Way};

/// What to do with some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// On they go.
    Pass,
    /// They are lost; the connection stays.
    Swallow,
    /// So many of them go on, then the connection is cut: the client sees a reset, or an end.
    Cut { keep: usize, reset: bool },
    /// They go on, and the connection is cut at the client's next word or after a while.
    PassAndDoom,
}

/// One connection.
#[derive(Debug, Default)]
struct Line {
    /// The flight that it speaks or spoke in last; 0 for none.
    flight: u64,
    /// It has asked, and has heard nothing since.
    awaiting: bool,
    /// It has asked, and its question is still here: what was not asked for comes first.
    held_back: bool,
    /// A link between servers: nothing of it is looked at.
    link: bool,
    /// The client's own monitoring: neither counted nor hit by a fault of one flight.
    ignored: bool,
    /// The client has spoken since the idle time began.
    spoke: bool,
    /// What the server says on it is thrown away.
    muted: bool,
    /// It is cut at the next word.
    doomed: bool,
    /// The client is gone, and the server still at work on what it asked.
    hung_up: bool,
}

#[derive(Debug)]
struct Armed {
    fault: Fault,
    at: u64,
    fired: bool,
}

/// The bookkeeping of all connections of one proxy.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    lines: BTreeMap<u64, Line>,
    names: u64,
    /// How many flights have begun; also the number of the newest.
    begun: u64,
    /// The newest flight has been answered, or nobody waits for its answer any more: whatever comes begins another one.
    heard: bool,
    answered: u64,
    /// Who counts: from after which flight, and how many so far.
    counters: BTreeMap<u64, (u64, u64)>,
    armed: Option<Armed>,
    /// Set by a fault that holds; the owner of this bookkeeping holds the bytes.
    pub hold_requests: bool,
    pub hold_answers: bool,
}

impl Flights {
    pub fn connect(&mut self, link: bool) -> u64 {
        self.names += 1;
        self.lines.insert(
            self.names,
            Line {
                link,
                ..Line::default()
            },
        );
        self.names
    }

    /// The client is gone. True when an answer is still to come: until then the server is at work for it.
    pub fn hang_up(&mut self, name: u64) -> bool {
        let Some(line) = self.lines.get_mut(&name) else {
            return false;
        };
        line.hung_up = true;
        let late = line.awaiting && !line.ignored && !line.muted;
        self.forget_the_unheard();
        late
    }

    pub fn gone(&mut self, line: u64) {
        // Whoever hung up first: the connection is cut after its answer.
        self.doom_done(line);
        self.lines.remove(&line);
        self.forget_the_unheard();
    }

    pub fn connections(&self) -> usize {
        self.lines
            .values()
            .filter(|l| !l.link && !l.hung_up)
            .count()
    }

    pub fn links(&self) -> usize {
        self.lines.values().filter(|l| l.link).count()
    }

    /// Whether a line is one that flights are made of.
    pub fn is_watched(&self, line: u64) -> bool {
        self.lines.get(&line).is_some_and(|l| !l.link && !l.ignored)
    }

    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Whether an answer is still to come, whoever waits for it.
    pub fn under_way(&self) -> bool {
        self.lines
            .values()
            .any(|l| (l.awaiting || l.held_back) && !l.ignored && !l.muted)
    }

    /// A flight that nobody waits for any more is over.
    fn forget_the_unheard(&mut self) {
        if !self
            .lines
            .values()
            .any(|l| l.awaiting && !l.ignored && !l.hung_up && l.flight == self.begun)
        {
            self.heard = true;
        }
    }

    pub fn count(&mut self) -> u64 {
        self.names += 1;
        self.counters.insert(self.names, (self.begun, 0));
        self.heard = true;
        self.names
    }

    pub fn counted(&self, counter: u64) -> u64 {
        self.counters.get(&counter).map_or(0, |(_, n)| *n)
    }

    pub fn stop_counting(&mut self, counter: u64) {
        self.counters.remove(&counter);
    }

    /// Waits for the flight that comes after so many others.
    pub fn arm(&mut self, skip: u64, fault: Fault) {
        self.heard = true;
        self.armed = Some(Armed {
            fault,
            at: self.begun.saturating_add(1).saturating_add(skip),
            fired: false,
        });
    }

    pub fn disarm(&mut self) {
        self.armed = None;
    }

    pub fn fired(&self) -> bool {
        self.armed.as_ref().is_some_and(|a| a.fired)
    }

    /// This line is the client's own monitoring.
    pub fn ignore(&mut self, name: u64) {
        if let Some(line) = self.lines.get_mut(&name) {
            line.ignored = true;
        }
    }

    pub fn begin_idle(&mut self) {
        self.lines.values_mut().for_each(|l| l.spoke = false);
    }

    /// Who spoke or waited for an answer while nothing was asked of the client is its own monitoring.
    pub fn end_idle(&mut self) -> usize {
        for line in self.lines.values_mut() {
            line.ignored |= !line.hung_up && (line.spoke || line.awaiting);
        }
        self.forget_the_unheard();
        self.lines.values().filter(|l| l.ignored).count()
    }

    pub fn passes(&mut self, line: u64, way: Way, bytes: usize) -> Verdict {
        match way {
            Way::Requests => self.asks(line, bytes),
            Way::Answers => self.answers(line, bytes),
        }
    }

    /// What belongs to no flight passes: only what is the matter with its connection is the matter with it.
    pub fn greets(&mut self, name: u64, way: Way) -> Verdict {
        match (way, self.lines.get(&name)) {
            (_, Some(line)) if line.link => Verdict::Pass,
            (Way::Requests, Some(line)) if line.doomed => Verdict::Cut {
                keep: 0,
                reset: true,
            },
            // The server may still be at work for a client that is gone.
            (Way::Answers, Some(line)) if line.muted || line.hung_up => Verdict::Swallow,
            (Way::Answers, Some(line)) if line.doomed => Verdict::PassAndDoom,
            _ => Verdict::Pass,
        }
    }

    /// The client has asked, and its question is not carried on yet.
    pub fn hold_back(&mut self, name: u64) {
        if let Some(line) = self.lines.get_mut(&name) {
            line.held_back = true;
        }
    }

    fn asks(&mut self, name: u64, bytes: usize) -> Verdict {
        let Some(line) = self.lines.get_mut(&name) else {
            return Verdict::Pass;
        };
        line.held_back = false;
        if line.link {
            return Verdict::Pass;
        }
        line.spoke = true;
        if line.doomed {
            return Verdict::Cut {
                keep: 0,
                reset: true,
            };
        }
        if line.ignored {
            return Verdict::Pass;
        }
        if !line.awaiting {
            line.awaiting = true;
            if self.heard || self.begun == 0 {
                self.begun += 1;
                self.heard = false;
            }
            line.flight = self.begun;
        }
        let Some(armed) = self
            .armed
            .as_mut()
            .filter(|a| a.at == line.flight && !a.fired)
        else {
            return Verdict::Pass;
        };
        match armed.fault {
            Fault::Cut(Stage::BeforeRequest) => {
                armed.fired = true;
                Verdict::Cut {
                    keep: 0,
                    reset: true,
                }
            }
            Fault::Cut(Stage::WithinRequest) => {
                armed.fired = true;
                Verdict::Cut {
                    keep: bytes / 2,
                    reset: true,
                }
            }
            Fault::HoldRequest => {
                armed.fired = true;
                self.hold_requests = true;
                Verdict::Pass
            }
            Fault::Cut(_) | Fault::LoseAnswer | Fault::HoldAnswer => Verdict::Pass,
        }
    }

    fn answers(&mut self, name: u64, bytes: usize) -> Verdict {
        let Some(line) = self.lines.get_mut(&name) else {
            return Verdict::Pass;
        };
        if line.link {
            return Verdict::Pass;
        }
        if line.hung_up {
            line.awaiting = false;
            return Verdict::Cut {
                keep: 0,
                reset: false,
            };
        }
        if line.muted {
            return Verdict::Swallow;
        }
        if line.doomed {
            return Verdict::PassAndDoom;
        }
        if line.ignored || !line.awaiting {
            return Verdict::Pass;
        }
        if let Some(armed) = self
            .armed
            .as_mut()
            .filter(|a| a.at == line.flight && !a.fired)
        {
            match armed.fault {
                Fault::Cut(Stage::AfterRequest) => {
                    armed.fired = true;
                    return Verdict::Cut {
                        keep: 0,
                        reset: true,
                    };
                }
                Fault::Cut(Stage::WithinAnswer) => {
                    armed.fired = true;
                    return Verdict::Cut {
                        keep: bytes / 2,
                        reset: false,
                    };
                }
                Fault::LoseAnswer => {
                    armed.fired = true;
                    line.muted = true;
                    return Verdict::Swallow;
                }
                Fault::HoldAnswer => {
                    armed.fired = true;
                    self.hold_answers = true;
                }
                // It has fired when the cut is made.
                Fault::Cut(Stage::AfterAnswer) => line.doomed = true,
                Fault::Cut(_) | Fault::HoldRequest => {}
            }
        }
        line.awaiting = false;
        let doomed = line.doomed;
        if line.flight == self.begun && !self.heard {
            self.heard = true;
            self.answered += 1;
            for (from, n) in self.counters.values_mut() {
                *n += u64::from(self.begun > *from);
            }
        }
        if doomed {
            Verdict::PassAndDoom
        } else {
            Verdict::Pass
        }
    }

    /// A doomed connection is cut now.
    pub fn doom_done(&mut self, line: u64) {
        if self.lines.get(&line).is_some_and(|l| l.doomed)
            && let Some(armed) = &mut self.armed
        {
            armed.fired = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(f: &mut Flights, line: u64) {
        assert_eq!(f.asks(line, 10), Verdict::Pass);
    }

    fn answer(f: &mut Flights, line: u64) {
        assert_eq!(f.answers(line, 10), Verdict::Pass);
    }

    #[test]
    fn what_is_said_before_an_answer_is_heard_is_one_flight() {
        let mut f = Flights::default();
        let (a, b) = (f.connect(false), f.connect(false));
        // A greeting is no answer.
        answer(&mut f, a);
        assert_eq!(f.answered(), 0);
        // Pipelined, and on two connections at once.
        for line in [a, a, b] {
            ask(&mut f, line);
        }
        for line in [a, a, b, b] {
            answer(&mut f, line);
        }
        assert_eq!(f.answered(), 1);
        // One after the other, wherever.
        for line in [a, b, a] {
            ask(&mut f, line);
            answer(&mut f, line);
        }
        assert_eq!(f.answered(), 4);
        // Asked after the first answer of the two: another one.
        ask(&mut f, a);
        ask(&mut f, b);
        answer(&mut f, a);
        ask(&mut f, a);
        answer(&mut f, b);
        answer(&mut f, a);
        assert_eq!(f.answered(), 6);
    }

    #[test]
    fn a_request_that_is_never_answered_is_no_round_trip() {
        let mut f = Flights::default();
        let (a, b) = (f.connect(false), f.connect(false));
        ask(&mut f, a);
        f.gone(a);
        ask(&mut f, b);
        answer(&mut f, b);
        assert_eq!(f.answered(), 1);
    }

    #[test]
    fn monitoring_is_neither_counted_nor_hit() {
        let mut f = Flights::default();
        let (a, monitor, poll) = (f.connect(false), f.connect(false), f.connect(false));
        ask(&mut f, poll);
        f.begin_idle();
        ask(&mut f, monitor);
        answer(&mut f, monitor);
        assert_eq!(f.end_idle(), 2);
        f.arm(0, Fault::Cut(Stage::BeforeRequest));
        let counter = f.count();
        ask(&mut f, monitor);
        answer(&mut f, poll);
        ask(&mut f, poll);
        answer(&mut f, monitor);
        assert_eq!((f.counted(counter), f.fired()), (0, false));
        assert_eq!(
            f.asks(a, 10),
            Verdict::Cut {
                keep: 0,
                reset: true
            }
        );
        assert!(f.fired());
    }

    #[test]
    fn a_line_that_is_known_for_monitoring_is_never_part_of_a_flight() {
        let mut f = Flights::default();
        let (monitor, a) = (f.connect(false), f.connect(false));
        f.ignore(monitor);
        let counter = f.count();
        f.arm(0, Fault::LoseAnswer);
        ask(&mut f, monitor);
        assert!(!f.under_way());
        ask(&mut f, a);
        answer(&mut f, monitor);
        assert_eq!(f.answers(a, 10), Verdict::Swallow);
        assert!(f.fired());
        assert_eq!(f.counted(counter), 0);
    }

    #[test]
    fn links_between_servers_are_neither_counted_nor_hit() {
        let mut f = Flights::default();
        let (link, a) = (f.connect(true), f.connect(false));
        f.arm(0, Fault::LoseAnswer);
        f.begin_idle();
        ask(&mut f, link);
        assert_eq!(
            (f.under_way(), f.end_idle(), f.connections(), f.links()),
            (false, 0, 1, 1)
        );
        answer(&mut f, link);
        assert_eq!((f.answered(), f.fired()), (0, false));
        ask(&mut f, a);
        assert_eq!(f.answers(a, 10), Verdict::Swallow);
    }

    #[test]
    fn who_hangs_up_is_not_waited_for_but_the_server_is() {
        let mut f = Flights::default();
        let (a, b) = (f.connect(false), f.connect(false));
        ask(&mut f, a);
        assert!(f.hang_up(a));
        assert_eq!((f.under_way(), f.connections()), (true, 1));
        ask(&mut f, b);
        assert_eq!(
            f.answers(a, 10),
            Verdict::Cut {
                keep: 0,
                reset: false
            }
        );
        assert_eq!(f.answered(), 0);
        answer(&mut f, b);
        assert_eq!((f.answered(), f.under_way()), (1, false));
        assert!(!f.hang_up(b), "nothing is to come");
    }

    #[test]
    fn a_fault_waits_for_its_flight() {
        let mut f = Flights::default();
        let a = f.connect(false);
        ask(&mut f, a);
        answer(&mut f, a);
        f.arm(1, Fault::Cut(Stage::WithinAnswer));
        ask(&mut f, a);
        answer(&mut f, a);
        ask(&mut f, a);
        assert!(!f.fired());
        assert_eq!(
            f.answers(a, 10),
            Verdict::Cut {
                keep: 5,
                reset: false
            }
        );
        assert!(f.fired());
    }

    #[test]
    fn after_the_answer_is_before_the_next_word() {
        let mut f = Flights::default();
        let a = f.connect(false);
        f.arm(0, Fault::Cut(Stage::AfterAnswer));
        ask(&mut f, a);
        assert_eq!(f.answers(a, 10), Verdict::PassAndDoom);
        assert_eq!(f.answers(a, 10), Verdict::PassAndDoom);
        assert!(!f.fired());
        assert_eq!(
            f.asks(a, 10),
            Verdict::Cut {
                keep: 0,
                reset: true
            }
        );
        f.doom_done(a);
        assert!(f.fired());
    }

    #[test]
    fn a_handshake_belongs_to_no_flight() {
        let mut f = Flights::default();
        let (a, spare) = (f.connect(false), f.connect(false));
        let counter = f.count();
        f.arm(0, Fault::Cut(Stage::BeforeRequest));
        f.begin_idle();
        for way in [Way::Requests, Way::Answers, Way::Requests] {
            assert_eq!(f.greets(spare, way), Verdict::Pass);
        }
        assert_eq!(
            (f.end_idle(), f.counted(counter), f.under_way(), f.fired()),
            (0, 0, false, false)
        );
        assert_eq!(
            f.asks(a, 10),
            Verdict::Cut {
                keep: 0,
                reset: true
            }
        );
        // What is the matter with its connection is the matter with it.
        f.arm(0, Fault::LoseAnswer);
        ask(&mut f, spare);
        assert_eq!(
            (f.greets(spare, Way::Answers), f.fired()),
            (Verdict::Pass, false)
        );
        assert_eq!(f.answers(spare, 10), Verdict::Swallow);
        assert_eq!(f.greets(spare, Way::Answers), Verdict::Swallow);
        let doomed = f.connect(false);
        f.arm(0, Fault::Cut(Stage::AfterAnswer));
        ask(&mut f, doomed);
        assert_eq!(f.answers(doomed, 10), Verdict::PassAndDoom);
        assert_eq!(
            f.greets(doomed, Way::Requests),
            Verdict::Cut {
                keep: 0,
                reset: true
            }
        );
    }

    #[test]
    fn a_question_that_is_held_back_is_under_way_and_what_comes_meanwhile_is_no_answer() {
        let mut f = Flights::default();
        let a = f.connect(false);
        f.hold_back(a);
        answer(&mut f, a);
        assert_eq!((f.under_way(), f.answered()), (true, 0));
        ask(&mut f, a);
        answer(&mut f, a);
        assert_eq!((f.under_way(), f.answered()), (false, 1));
        f.hold_back(a);
        f.gone(a);
        assert!(!f.under_way());
    }

    #[test]
    fn a_lost_answer_mutes_its_connection() {
        let mut f = Flights::default();
        let a = f.connect(false);
        f.arm(0, Fault::LoseAnswer);
        ask(&mut f, a);
        assert_eq!(f.answers(a, 10), Verdict::Swallow);
        f.disarm();
        ask(&mut f, a);
        assert_eq!(f.answers(a, 10), Verdict::Swallow);
    }
}
