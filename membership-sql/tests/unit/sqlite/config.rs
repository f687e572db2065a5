//! Unit tests of `src/sqlite/config.rs`, which includes them.

use super::*;

#[test]
fn urls_name_files() {
    for (url, path) in [
        ("sqlite:m.db", "m.db"),
        ("sqlite:a/m.db", "a/m.db"),
        ("sqlite:/a/m.db", "/a/m.db"),
        ("sqlite:///a/m.db", "/a/m.db"),
        ("sqlite://a/m.db", "a/m.db"),
        ("sqlite:what%3F%20now.db", "what? now.db"),
    ] {
        assert_eq!(
            SqliteConfig::from_url(url).unwrap().path(),
            Path::new(path),
            "{url}"
        );
    }
    let all = "sqlite:m.db?create=false&operation_timeout=250ms&allow_network_file_system=true";
    assert_eq!(
        SqliteConfig::from_url(all).unwrap(),
        SqliteConfig::new("m.db")
            .create(false)
            .operation_timeout(Duration::from_millis(250))
            .allow_network_file_system(true)
    );
}

#[test]
fn bad_urls_are_refused_with_advice() {
    for (url, why) in [
        ("postgres://x", "starts with `sqlite:`"),
        ("sqlite:", "no file"),
        ("sqlite::memory:", "private to one connection"),
        ("sqlite:m.db?mode=ro", "`mode` is no option"),
        ("sqlite:m.db?create=perhaps", "true or false"),
        ("sqlite:m.db?operation_timeout=soon", "such as 3s"),
        ("sqlite:m.db?operation_timeout=0s", "10 ms"),
        ("sqlite:m%zz.db", "hexadecimal"),
        ("sqlite:m%00.db", "NUL"),
    ] {
        let error = SqliteConfig::from_url(url).unwrap_err();
        assert_eq!(error.kind(), TableErrorKind::Configuration);
        assert!(error.to_string().contains(why), "{error}");
    }
}
