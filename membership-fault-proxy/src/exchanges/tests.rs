//! Which bytes count as one exchange, and which exchange a fault hits.

use super::*;

fn ask(f: &mut Exchanges, connection: u64) {
    assert_eq!(f.request(connection, 10), Verdict::Pass);
}

fn answer(f: &mut Exchanges, connection: u64) {
    assert_eq!(f.answer(connection, 10), Verdict::Pass);
}

#[test]
fn requests_before_the_first_answer_are_one_exchange() {
    let mut f = Exchanges::default();
    let (a, b) = (f.connect(false), f.connect(false));
    // A greeting is no answer.
    answer(&mut f, a);
    assert_eq!(f.answered(), 0);
    // Pipelined, and on two connections at the same time.
    for connection in [a, a, b] {
        ask(&mut f, connection);
    }
    for connection in [a, a, b, b] {
        answer(&mut f, connection);
    }
    assert_eq!(f.answered(), 1);
    // One after the other, on either connection.
    for connection in [a, b, a] {
        ask(&mut f, connection);
        answer(&mut f, connection);
    }
    assert_eq!(f.answered(), 4);
    // Sent after the first of two answers: a new exchange.
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
    let mut f = Exchanges::default();
    let (a, b) = (f.connect(false), f.connect(false));
    ask(&mut f, a);
    f.closed(a);
    ask(&mut f, b);
    answer(&mut f, b);
    assert_eq!(f.answered(), 1);
}

#[test]
fn monitoring_is_neither_counted_nor_hit() {
    let mut f = Exchanges::default();
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
        f.request(a, 10),
        Verdict::Cut {
            keep: 0,
            reset: true
        }
    );
    assert!(f.fired());
}

#[test]
fn a_monitoring_connection_is_part_of_no_exchange() {
    let mut f = Exchanges::default();
    let (monitor, a) = (f.connect(false), f.connect(false));
    f.ignore(monitor);
    let counter = f.count();
    f.arm(0, Fault::LoseAnswer);
    ask(&mut f, monitor);
    assert!(!f.under_way());
    ask(&mut f, a);
    answer(&mut f, monitor);
    assert_eq!(f.answer(a, 10), Verdict::Swallow);
    assert!(f.fired());
    assert_eq!(f.counted(counter), 0);
}

#[test]
fn links_between_servers_are_neither_counted_nor_hit() {
    let mut f = Exchanges::default();
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
    assert_eq!(f.answer(a, 10), Verdict::Swallow);
}

#[test]
fn a_request_stays_under_way_after_its_client_is_gone() {
    let mut f = Exchanges::default();
    let (a, b) = (f.connect(false), f.connect(false));
    ask(&mut f, a);
    assert!(f.client_closed(a));
    assert_eq!((f.under_way(), f.connections()), (true, 1));
    ask(&mut f, b);
    assert_eq!(
        f.answer(a, 10),
        Verdict::Cut {
            keep: 0,
            reset: false
        }
    );
    assert_eq!(f.answered(), 0);
    answer(&mut f, b);
    assert_eq!((f.answered(), f.under_way()), (1, false));
    assert!(!f.client_closed(b), "no answer is due");
}

#[test]
fn a_fault_hits_the_exchange_it_is_set_for() {
    let mut f = Exchanges::default();
    let a = f.connect(false);
    ask(&mut f, a);
    answer(&mut f, a);
    f.arm(1, Fault::Cut(Stage::WithinAnswer));
    ask(&mut f, a);
    answer(&mut f, a);
    ask(&mut f, a);
    assert!(!f.fired());
    assert_eq!(
        f.answer(a, 10),
        Verdict::Cut {
            keep: 5,
            reset: false
        }
    );
    assert!(f.fired());
}

const PASS_THEN_CUT: Verdict = Verdict::PassThenCut { hold_last: false };

#[test]
fn a_cut_before_the_last_byte_holds_it_back() {
    let mut f = Exchanges::default();
    let (a, held) = (f.connect(false), Verdict::PassThenCut { hold_last: true });
    f.arm(0, Fault::Cut(Stage::BeforeLastByte));
    ask(&mut f, a);
    assert_eq!((f.answer(a, 10), f.answer(a, 1)), (held, held));
    assert_eq!((f.handshake(a, Way::Answers), f.fired()), (held, false));
    f.cut_done(a);
    assert!(f.fired());
}

#[test]
fn a_cut_after_the_answer_comes_before_the_next_request() {
    let mut f = Exchanges::default();
    let a = f.connect(false);
    f.arm(0, Fault::Cut(Stage::AfterAnswer));
    ask(&mut f, a);
    assert_eq!(f.answer(a, 10), PASS_THEN_CUT);
    assert_eq!(f.answer(a, 10), PASS_THEN_CUT);
    assert!(!f.fired());
    assert_eq!(
        f.request(a, 10),
        Verdict::Cut {
            keep: 0,
            reset: true
        }
    );
    f.cut_done(a);
    assert!(f.fired());
}

#[test]
fn a_handshake_belongs_to_no_exchange() {
    let mut f = Exchanges::default();
    let (a, spare) = (f.connect(false), f.connect(false));
    let counter = f.count();
    f.arm(0, Fault::Cut(Stage::BeforeRequest));
    f.begin_idle();
    for way in [Way::Requests, Way::Answers, Way::Requests] {
        assert_eq!(f.handshake(spare, way), Verdict::Pass);
    }
    assert_eq!(
        (f.end_idle(), f.counted(counter), f.under_way(), f.fired()),
        (0, 0, false, false)
    );
    assert_eq!(
        f.request(a, 10),
        Verdict::Cut {
            keep: 0,
            reset: true
        }
    );
    // The state of the connection applies to its handshakes too.
    f.arm(0, Fault::LoseAnswer);
    ask(&mut f, spare);
    assert_eq!(
        (f.handshake(spare, Way::Answers), f.fired()),
        (Verdict::Pass, false)
    );
    assert_eq!(f.answer(spare, 10), Verdict::Swallow);
    assert_eq!(f.handshake(spare, Way::Answers), Verdict::Swallow);
    let cut_due = f.connect(false);
    f.arm(0, Fault::Cut(Stage::AfterAnswer));
    ask(&mut f, cut_due);
    assert_eq!(f.answer(cut_due, 10), PASS_THEN_CUT);
    assert_eq!(
        f.handshake(cut_due, Way::Requests),
        Verdict::Cut {
            keep: 0,
            reset: true
        }
    );
}

#[test]
fn a_delayed_request_is_under_way_and_has_no_answer_yet() {
    let mut f = Exchanges::default();
    let a = f.connect(false);
    f.delay_request(a);
    answer(&mut f, a);
    assert_eq!((f.under_way(), f.answered()), (true, 0));
    ask(&mut f, a);
    answer(&mut f, a);
    assert_eq!((f.under_way(), f.answered()), (false, 1));
    f.delay_request(a);
    f.closed(a);
    assert!(!f.under_way());
}

#[test]
fn a_lost_answer_mutes_its_connection() {
    let mut f = Exchanges::default();
    let a = f.connect(false);
    f.arm(0, Fault::LoseAnswer);
    ask(&mut f, a);
    assert_eq!(f.answer(a, 10), Verdict::Swallow);
    f.disarm();
    ask(&mut f, a);
    assert_eq!(f.answer(a, 10), Verdict::Swallow);
}

#[test]
fn a_server_that_asks_whether_its_client_is_there_is_no_answer() {
    let mut f = Exchanges::default();
    let a = f.connect(false);
    let counter = f.count();
    ask(&mut f, a);
    assert_eq!(f.keep_alive(a, Way::Answers), Verdict::Pass);
    // What the client says to it begins nothing, so the next request is counted.
    assert_eq!(f.keep_alive(a, Way::Requests), Verdict::Pass);
    assert!(f.under_way());
    answer(&mut f, a);
    assert_eq!(f.counted(counter), 1);
    assert_eq!(f.keep_alive(a, Way::Requests), Verdict::Pass);
    let counter = f.count();
    ask(&mut f, a);
    answer(&mut f, a);
    assert_eq!(f.counted(counter), 1);
}

#[test]
fn a_keep_alive_message_is_part_of_no_exchange() {
    let mut f = Exchanges::default();
    let a = f.connect(false);
    f.arm(0, Fault::Cut(Stage::BeforeRequest));
    f.begin_idle();
    assert_eq!(f.keep_alive(a, Way::Requests), Verdict::Pass);
    assert!(!f.under_way());
    answer(&mut f, a);
    assert_eq!((f.answered(), f.end_idle(), f.fired()), (0, 0, false));
    let cut = Verdict::Cut {
        keep: 0,
        reset: true,
    };
    assert_eq!(f.request(a, 10), cut);
}
