use super::*;

fn read(url: &str) -> Result<MongoConfig, TableError> {
    parse(url, |_| None)
}

#[test]
fn urls_name_servers() {
    for (url, shown) in [
        ("mongodb://localhost", "localhost:27017"),
        (
            "mongodb://a,b:7,[::1]:8/db?replicaSet=rs0",
            "a:27017,b:7,[::1]:8",
        ),
        (
            "MONGODB://u:p%40ss@h/?tls=true&tlscafile=/ca.pem&APPNAME=x",
            "h:27017",
        ),
        (
            "mongodb://h/?retryWrites=true&w=majority&journal=true&readPreference=primary",
            "h:27017",
        ),
        (
            "mongodb://h/?reads=majority&allow_standalone&operation_timeout=2s&connectTimeoutMS=500&directConnection=true",
            "h:27017",
        ),
    ] {
        assert_eq!(read(url).unwrap().address(), shown, "{url}");
    }
}

#[test]
fn bad_urls_are_refused_without_secrets() {
    for (url, why) in [
        ("redis://h", "starts with"),
        ("mongodb:///db", "names no host"),
        ("mongodb://h:0", "a port is"),
        ("mongodb://hunter2@h", "has no password"),
        ("mongodb://:hunter2@h", "no user"),
        ("mongodb://u:hunter2@h/a.b", "the name of a database"),
        (
            "mongodb://u:hunter2@h/?collection=a$",
            "the name of a collection",
        ),
        (
            "mongodb://u:hunter2@h/?nonsense=hunter2",
            "`nonsense` is no option",
        ),
        ("mongodb://u:hunter2@h/?w=1", "option `w`"),
        ("mongodb://u:hunter2@h/?journal=false", "journal"),
        (
            "mongodb://u:hunter2@h/?readPreference=secondary",
            "option `readPreference`",
        ),
        (
            "mongodb://u:hunter2@h/?reads=local",
            "linearizable or majority",
        ),
        (
            "mongodb://u:hunter2@h/?operation_timeout=1ms",
            "operation_timeout",
        ),
        ("mongodb://u:hunter2@h/?tlsCAFile=/x", "tls=true"),
        (
            "mongodb://u:hunter2@a,b/?directConnection=true",
            "takes one host",
        ),
        ("mongodb+srv://u:hunter2@h:1/", "mongodb+srv://"),
    ] {
        let e = read(url).unwrap_err();
        assert_eq!(e.kind(), TableErrorKind::Configuration, "{url}: {e}");
        assert!(e.to_string().contains(why), "{url}: {e}");
        assert!(!format!("{e} {e:?}").contains("hunter2"), "{url}: {e:?}");
    }
}

#[test]
fn users_come_from_the_url_or_the_environment() {
    let environment =
        |name: &str| Some(if name == USERNAME { "ann" } else { "hunter2" }.to_owned());
    let from = |url: &str| format!("{:?}", parse(url, environment).unwrap());
    assert!(from("mongodb://h").contains("username: Some(\"ann\")"));
    let bob = from("mongodb://bob:other@h");
    assert!(
        bob.contains("username: Some(\"bob\")")
            && !bob.contains("other")
            && !bob.contains("hunter2"),
        "{bob}"
    );
}
