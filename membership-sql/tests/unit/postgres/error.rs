//! Unit tests of `src/postgres/error.rs`, which includes them.

use super::*;

#[test]
fn every_state_has_a_kind() {
    for (code, kind) in [
        ("40001", TableErrorKind::Busy),
        ("40P01", TableErrorKind::Busy),
        ("55P03", TableErrorKind::Busy),
        ("57014", TableErrorKind::Busy),
        ("53300", TableErrorKind::Unavailable),
        ("57P01", TableErrorKind::Unavailable),
        ("57P02", TableErrorKind::Unavailable),
        ("57P03", TableErrorKind::Unavailable),
        ("25006", TableErrorKind::Unavailable),
        ("42501", TableErrorKind::PermissionDenied),
        ("42P01", TableErrorKind::NotInitialized),
        ("42703", TableErrorKind::Damaged),
        ("3D000", TableErrorKind::Configuration),
        ("28P01", TableErrorKind::PermissionDenied),
        ("28000", TableErrorKind::PermissionDenied),
        ("XX001", TableErrorKind::Damaged),
        ("XX000", TableErrorKind::Unavailable),
        ("53100", TableErrorKind::Unavailable),
    ] {
        assert_eq!(kind_of(code).0, kind, "{code}");
    }
}

/// As PgBouncer 1.18 says it, each with 08P01.
#[test]
fn a_pooler_without_a_server_is_no_wrong_configuration() {
    for (message, configuration) in [
        ("query_wait_timeout", false),
        (
            "server login has been failing, try again later (server_login_retry)",
            false,
        ),
        ("server conn crashed?", false),
        ("pgbouncer cannot connect to server", false),
        ("no more connections allowed (max_client_conn)", false),
        ("unsupported startup parameter: options", true),
        ("no such database: nodb", true),
        ("no such user: nobody", true),
        ("\"trust\" authentication failed", true),
        ("SSL required", true),
    ] {
        assert_eq!(is_configuration(message), configuration, "{message}");
    }
}

#[test]
fn a_lost_write_has_an_unknown_outcome_and_a_lost_read_has_not() {
    assert!(
        ["08P01", "08006", "40003"].into_iter().all(ends_unknown)
            && !["40001", "42P01", "57014"].into_iter().any(ends_unknown)
    );
    assert_eq!(
        lost(Phase::Writing, "x").kind(),
        TableErrorKind::OutcomeUnknown
    );
    assert_eq!(
        lost(Phase::Reading, "x").kind(),
        TableErrorKind::Unavailable
    );
    assert_eq!(lost(Phase::Before, "x").kind(), TableErrorKind::Unavailable);
}
