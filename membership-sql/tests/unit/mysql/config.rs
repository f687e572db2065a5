//! Unit tests of `src/mysql/config.rs`, which includes them.

use super::*;

#[test]
fn urls_name_servers() {
    let url = "mysql://silo:p%40ss@db.example:3307/app?ssl-mode=REQUIRED&procedure=never&pooler=true&operation_timeout=3s&create=false";
    let config = MysqlConfig::from_url_and(url, Some("other".to_owned())).unwrap();
    let same = MysqlConfig::new("db.example", "app")
        .port(3307)
        .user("silo")
        .password("p@ss")
        .ssl_mode(MysqlSslMode::Required)
        .procedure(MysqlProcedure::Never)
        .pooler(true)
        .create(false)
        .operation_timeout(Duration::from_secs(3));
    assert_eq!(config, same);
    assert!(!format!("{config:?} {config:#?}").contains("p@ss"));
    let plain = MysqlConfig::from_url_and("mysql://[::1]/app", Some("secret".to_owned())).unwrap();
    assert_eq!(plain, MysqlConfig::new("::1", "app").password("secret"));
    let several = MysqlConfig::from_url_and("mysql://a:1,b,[::1]:2/app", None).unwrap();
    let same = MysqlConfig::new("a", "app").port(1);
    let same = same.or_server("b", 3306).or_server("::1", 2);
    assert_eq!(several, same);
    assert_eq!(several.address(), "a:1,b:3306,[::1]:2");
}

#[test]
fn bad_urls_are_refused_with_advice() {
    for (url, why) in [
        ("postgres://x/y", "starts with `mysql://`"),
        ("mysql://u:secret@h", "no database"),
        ("mysql://u:secret@h:x/d", "port"),
        ("mysql://u:secret@a,:1/d", "a host"),
        (
            "mysql://u:secret@h/d?sslmode=require",
            "`sslmode` is no option",
        ),
        ("mysql://u:secret@h/d?ssl-mode=perhaps", "verify_identity"),
        ("mysql://u:secret@h/d?ssl-mode=verify_ca", "needs ssl-ca"),
        ("mysql://u:secret@h/d?ssl-ca=/no/such/file", "no file"),
        (
            "mysql://u:secret@h/d?procedure=yes",
            "auto, never or require",
        ),
        ("mysql://u:secret@h/d?create=perhaps", "true or false"),
        ("mysql://u:secret@h/d?operation_timeout=soon", "such as 3s"),
        ("mysql://u:secret@h/d?operation_timeout=1ms", "100 ms"),
    ] {
        let error = MysqlConfig::from_url(url).unwrap_err();
        assert_eq!(error.kind(), TableErrorKind::Configuration);
        assert!(error.to_string().contains(why), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }
}
