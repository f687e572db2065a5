use super::*;

fn read(url: &str) -> Result<ZkConfig, TableError> {
    parse(url, |_| None)
}

#[test]
fn urls_name_servers_and_a_root() {
    for (url, at, root) in [
        ("zk://localhost", "localhost:2181", "/membership"),
        ("zk://a,b:7,[::1]/x/y", "a:2181,b:7,[::1]:2181", "/x/y"),
        ("ZK://a:1/x/", "a:1", "/x"),
    ] {
        let config = read(url).unwrap();
        assert_eq!(
            (config.address().as_str(), config.root_path()),
            (at, root),
            "{url}"
        );
    }
    let config = read("zk://u:p%40@a/?operation_timeout=2s&session_timeout=9s&acl=open").unwrap();
    assert_eq!(config.login(), Some(&Credentials::new("u", "p@")));
    assert_eq!(
        (config.timeout(), config.session(), config.is_open()),
        (Duration::from_secs(2), Duration::from_secs(9), true)
    );
    assert!(!read("zk://u:p@a").unwrap().is_open() && read("zk://a").unwrap().is_open());
    let acls = read("zk://u:p@a?reader=digest:clients:a/b%2Bc=")
        .unwrap()
        .acls();
    assert_eq!(acls.len(), 2);
    assert_eq!(
        (acls[1].permission(), acls[1].scheme(), acls[1].id()),
        (Permission::READ, "digest", "clients:a/b+c=")
    );
}

#[test]
fn credentials_may_come_from_the_environment() {
    let all = |name: &str| Some(format!("{}-value", name.rsplit('_').next().unwrap()));
    assert_eq!(
        parse("zk://a", all).unwrap().login(),
        Some(&Credentials::new("USERNAME-value", "PASSWORD-value"))
    );
    assert_eq!(
        parse("zk://bo@a", all).unwrap().login(),
        Some(&Credentials::new("bo", "PASSWORD-value"))
    );
    assert_eq!(
        parse("zk://bo:x@a", all).unwrap().login(),
        Some(&Credentials::new("bo", "x"))
    );
}

#[test]
fn bad_urls_say_what_to_write_and_show_no_secret() {
    for url in [
        "redis://hush-hush@a",
        "zk://",
        "zk://u@a",
        "zk://:hush-hush@a",
        "zk://u:hush-hush@a:99999",
        "zk://u:hush-hush@a/x//y",
        "zk://u:hush-hush@a?colour=hush-hush",
        "zk://u:hush-hush@a?acl=hush-hush",
        "zk://u:hush-hush@a?tls",
        "zk://u:hush-hush@a?reader=clients",
        "zk://u:hush-hush@a?reader=digest:clients:x&acl=open",
        "zk://a?reader=digest:clients:x",
        "zk://u:hush-hush@a?operation_timeout=0s",
    ] {
        let e = read(url).unwrap_err();
        assert_eq!(e.kind(), TableErrorKind::Configuration, "{url}: {e}");
        assert!(!format!("{e} {e:?}").contains("hush"), "{url}: {e}");
    }
}

#[test]
fn bad_configurations_are_refused() {
    let good = || ZkConfig::new([("h", 2181)]);
    assert!(
        good().validate().is_ok()
            && good().root("/").validate().is_ok()
            && good().root("a/b/").validate().is_ok()
    );
    for bad in [
        ZkConfig::new(Vec::<(String, u16)>::new()),
        good().root("/a//b"),
        good().root("/a/../b"),
        good().root("x".repeat(300)),
        good().operation_timeout(Duration::ZERO),
        good().session_timeout(Duration::from_millis(1)),
        good().credentials("a:b", "c"),
        good().open(false),
        good().tls(true),
        good().tls_ca_file("ca.pem"),
        good().tls(true).tls_ca_file("ca.pem").tls_key_file("k"),
    ] {
        assert_eq!(
            bad.validate().map_err(|e| e.kind()),
            Err(TableErrorKind::Configuration),
            "{bad:?}"
        );
    }
}

#[test]
fn a_password_does_not_show() {
    let config = ZkConfig::new([("h", 2181)]).credentials("bo", "hush-hush");
    assert!(!format!("{config:?} {config:#?}").contains("hush"));
}
