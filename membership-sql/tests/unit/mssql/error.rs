//! Unit tests of `src/mssql/error.rs`, which includes them. What the server answers is in
//! `tests/mssql`.

use super::*;

#[test]
fn an_error_without_an_answer_is_certain_only_for_a_read() {
    use TableErrorKind as K;
    let lost = || Error::Io {
        kind: std::io::ErrorKind::ConnectionReset,
        message: "gone".to_owned(),
    };
    for (phase, kind) in [
        (Phase::Reading, K::Unavailable),
        (Phase::Writing, K::OutcomeUnknown),
        (Phase::Committing, K::OutcomeUnknown),
    ] {
        assert_eq!(from_batch(lost(), phase).kind(), kind, "{phase:?}");
    }
    assert!(ends_connection(&lost()));
    assert_eq!(
        from_mssql(Error::Tls("bad certificate".to_owned())).kind(),
        K::Configuration
    );
    let routed = Error::Routing {
        host: "other".to_owned(),
        port: 1,
    };
    assert!(from_mssql(routed).to_string().contains("other"));
    // The driver's texts may contain what was sent.
    let odd = from_mssql(Error::Protocol("bytes of a packet".into()));
    assert!(!odd.to_string().contains("bytes"), "{odd}");
}
