//! Unit tests of `src/mysql/error.rs`, which includes them.

use super::*;

fn server(code: u16) -> Error {
    Error::Server(ServerError {
        code,
        message: "words".to_owned(),
        state: "HY000".to_owned(),
    })
}

#[test]
fn certain_and_unknown_outcomes_are_distinguished() {
    use TableErrorKind as K;
    for (code, before, within) in [
        (1213, K::Busy, K::Busy),
        (1205, K::Busy, K::Busy),
        (1040, K::Unavailable, K::OutcomeUnknown),
        (1053, K::Unavailable, K::OutcomeUnknown),
        (1317, K::Unavailable, K::OutcomeUnknown),
        (1290, K::Unavailable, K::Unavailable),
        (1836, K::Unavailable, K::Unavailable),
        (1047, K::Unavailable, K::Unavailable),
        (3101, K::Unavailable, K::Unavailable),
        (1142, K::PermissionDenied, K::OutcomeUnknown),
        (1045, K::PermissionDenied, K::OutcomeUnknown),
        (1049, K::Configuration, K::OutcomeUnknown),
        (1153, K::LimitExceeded, K::OutcomeUnknown),
        (1180, K::Unavailable, K::OutcomeUnknown),
        (3024, K::Busy, K::OutcomeUnknown),
        (1146, K::NotInitialized, K::OutcomeUnknown),
    ] {
        assert_eq!(from_mysql(server(code)).kind(), before, "{code}");
        assert_eq!(from_commit(server(code)).kind(), within, "{code}");
    }
    let lost = || Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    assert_eq!(from_mysql(lost()).kind(), K::Unavailable);
    assert_eq!(from_commit(lost()).kind(), K::OutcomeUnknown);
    assert!(
        ends_connection(&lost())
            && ends_connection(&server(1053))
            && !ends_connection(&server(1213))
    );
}
