//! Unit tests of `src/postgres/config.rs`, which includes them.

use super::*;

fn parse(url: &str) -> Result<PostgresConfig, TableError> {
    PostgresConfig::from_url_and(url, |name| match name {
        "PGPASSWORD" => Some("from the environment".to_owned()),
        "PGPORT" => Some("6000".to_owned()),
        _ => None,
    })
}

#[test]
fn urls_name_servers() {
    let c = parse("postgres://u:p@a,b:7000/d?schema=s&prefix=x_&pooler=true&hints=false&create=false&synchronous_commit=remote_apply&failover=may_lose&sslmode=verify-full&sslrootcert=/ca.pem&operation_timeout=250ms&application_name=n&connect_timeout=2").unwrap();
    assert_eq!(
        (
            c.client.get_ports(),
            c.client.get_dbname(),
            c.client.get_user()
        ),
        (&[6000, 7000][..], Some("d"), Some("u"))
    );
    assert_eq!(c.client.get_password(), Some(&b"p"[..]));
    assert_eq!(
        (
            c.schema.as_str(),
            c.prefix.as_str(),
            c.pooler,
            c.hints,
            c.create
        ),
        ("s", "x_", true, false, false)
    );
    assert_eq!(
        (c.synchronous_commit, c.failover, c.ssl_mode),
        (
            PostgresSynchronousCommit::RemoteApply,
            PostgresFailover::MayLose,
            PostgresSslMode::VerifyFull
        )
    );
    assert_eq!(c.operation_timeout, Duration::from_millis(250));
    let c = parse("postgresql:///d").unwrap();
    assert_eq!(c.client.get_password(), Some(&b"from the environment"[..]));
    assert_eq!(c.client.get_hosts().len(), 1);
    let c = parse("postgres://[::1]:5433/").unwrap();
    assert_eq!(
        c.client.get_hosts(),
        [tokio_postgres::config::Host::Tcp("::1".to_owned())]
    );
    for (url, address) in [
        ("postgres://u:p@a,b:7000/d", "a:6000,b:7000"),
        ("postgres://[::1]:5433/", "[::1]:5433"),
        ("postgres:///d?hostaddr=10.0.0.1", "10.0.0.1:6000"),
        ("postgres://%2Frun%2Fpg/d", "/run/pg:6000"),
    ] {
        assert_eq!(Endpoint::join(&parse(url).unwrap().endpoints()), address);
    }
}

#[test]
fn bad_urls_are_refused_with_advice_and_without_the_password() {
    for (rest, why) in [
        ("h/d?colour=blue", "`colour` is no option"),
        ("h/d?pooler=perhaps", "true or false"),
        ("h/d?synchronous_commit=off", "remote_apply"),
        ("h/d?failover=x", "may_lose"),
        ("h/d?sslmode=maybe", "verify-full"),
        ("h/d?operation_timeout=0s", "100 ms"),
        ("h/d?operation_timeout=soon", "such as 3s"),
        ("h/d?prefix=A", "lower-case"),
        ("h/d?schema=", "1 to 63"),
        ("h:0/d", "port"),
    ] {
        let error = parse(&format!("postgres://u:hunter2@{rest}")).unwrap_err();
        assert_eq!(error.kind(), TableErrorKind::Configuration);
        let text = format!("{error} {error:?}");
        assert!(text.contains(why) && !text.contains("hunter2"), "{text}");
    }
    assert!(
        parse("mysql://h")
            .unwrap_err()
            .to_string()
            .contains("postgres://")
    );
    assert!(!format!("{:?}", parse("postgres://u:hunter2@h/d").unwrap()).contains("hunter2"));
}
