//! Changes URLs.

/// The URL with these options (`a=b&c=d`) after its own.
///
/// ```
/// use conformance_tests::servers::with_options;
///
/// assert_eq!(with_options("redis://host", "a=b"), "redis://host?a=b");
/// assert_eq!(with_options("redis://host/?a=b", "c=d"), "redis://host/?a=b&c=d");
/// assert_eq!(with_options("redis://host", ""), "redis://host");
/// ```
#[must_use]
pub fn with_options(url: &str, options: &str) -> String {
    let mark = match url.split_once('?') {
        _ if options.is_empty() => "",
        Some((_, "")) => "",
        Some(_) => "&",
        None => "?",
    };
    format!("{url}{mark}{options}")
}

/// The URL with this user and password, as they are written in URLs, in place of its own.
///
/// ```
/// use conformance_tests::servers::with_user;
///
/// assert_eq!(with_user("redis://:a@host/?b=c@d", "me", "s"), "redis://me:s@host/?b=c@d");
/// assert_eq!(with_user("redis://host", "", "s"), "redis://:s@host");
/// ```
#[must_use]
pub fn with_user(url: &str, user: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let begin = rest[..end].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{user}:{password}@{}", &rest[begin..])
}
