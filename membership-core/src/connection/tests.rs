use super::*;

fn parse(text: &str) -> Result<ConnectionString, TableError> {
    ConnectionString::parse("store", &["db", "db+tls"], text)
}

#[test]
fn parses_connection_strings() {
    let parts =
        parse("DB+tls://ops:p%40ss:w@a.example:5433,[::1]:5434,b/my%20db?x=1&flag&y=%3D").unwrap();
    assert_eq!(
        (
            parts.scheme.as_str(),
            parts.user.as_deref(),
            parts.password.as_deref()
        ),
        ("db+tls", Some("ops"), Some("p@ss:w"))
    );
    let hosts = [
        ("a.example".to_owned(), Some(5433)),
        ("::1".to_owned(), Some(5434)),
        ("b".to_owned(), None),
    ];
    assert_eq!(
        (parts.hosts.as_slice(), parts.path.as_deref()),
        (hosts.as_slice(), Some("my db"))
    );
    let options: Vec<_> = parts.options.iter().map(|o| (o.name(), o.text())).collect();
    assert_eq!(
        options,
        [
            ("x", "1".to_owned()),
            ("flag", "true".to_owned()),
            ("y", "=".to_owned())
        ]
    );
    assert_eq!(parts.addresses(7), ["a.example:5433", "[::1]:5434", "b:7"]);
    let nothing = parse("db://").unwrap();
    assert_eq!(
        (nothing.user, nothing.password, nothing.path),
        (None, None, None)
    );
    assert!(nothing.hosts.is_empty() && nothing.options.is_empty());
    assert_eq!(parse("db:///d").unwrap().path.as_deref(), Some("d"));
    assert_eq!(parse("db://:@h").unwrap().password.as_deref(), Some(""));
}

#[test]
fn a_file_string_has_a_path_and_no_host() {
    for (text, path) in [
        ("file:m.db", "m.db"),
        ("file:/a/m.db?x", "/a/m.db"),
        ("file:///a/m%3F.db", "/a/m?.db"),
        ("file:a@b:1/c", "a@b:1/c"),
    ] {
        let parts = ConnectionString::parse_file("files", &["file"], text).unwrap();
        assert_eq!(
            (parts.path.as_deref(), parts.hosts.len()),
            (Some(path), 0),
            "{text}"
        );
    }
    assert_eq!(
        ConnectionString::parse_file("files", &["file"], "file:")
            .unwrap()
            .path,
        None
    );
}

#[test]
fn options_have_types() {
    let parts = parse("db://h?yes&no=false&n=7&t=250ms&w=Two").unwrap();
    let [yes, no, number, time, word] = parts.options.as_slice() else {
        panic!("{parts:?}")
    };
    assert!(yes.flag().unwrap() && !no.flag().unwrap());
    assert_eq!(
        (number.number::<u32>().unwrap(), time.duration().unwrap()),
        (7, Duration::from_millis(250))
    );
    assert_eq!(word.one_of(&[("one", 1), ("two", 2)]).unwrap(), 2);
    for (error, why) in [
        (word.flag().unwrap_err(), "option `w` is true or false"),
        (
            word.number::<u8>().unwrap_err(),
            "option `w` is a whole number",
        ),
        (
            number.duration().unwrap_err(),
            "option `n` is a time such as 3s",
        ),
        (
            number.one_of(&[("a", 0), ("b", 0), ("c", 0)]).unwrap_err(),
            "option `n` is a, b or c",
        ),
        (
            number.unknown("x and y"),
            "`n` is no option: there are x and y",
        ),
    ] {
        assert_eq!(error.kind(), TableErrorKind::Configuration);
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn errors_name_the_fault_and_show_no_secret() {
    for (text, why) in [
        ("u:secret@h", "`db://` or `db+tls://`"),
        ("db:u:secret@h", "`db://` or `db+tls://`"),
        ("secret://h", "`db://` or `db+tls://`"),
        ("db://u:secret@h:x/d", "port"),
        ("db://u:secret@h:0/d", "port"),
        ("db://u:secret@[::1]x/d", "port"),
        ("db://u:secret@::1/d", "brackets"),
        ("db://u:secret@[::1/d", "closing bracket"),
        ("db://u:secret%zz@h/d", "hexadecimal"),
        ("db://u:secret%ff@h/d", "UTF-8"),
        ("db://h/d?secret=%f", "hexadecimal"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            error.to_string().contains(why) && !format!("{error} {error:?}").contains("secret"),
            "{text}: {error:?}"
        );
    }
    let shown = format!("{:?}", parse("db://user:secret@h?key=secret").unwrap());
    assert!(
        !shown.contains("secret") && !shown.contains("user") && shown.contains("key"),
        "{shown}"
    );
}
