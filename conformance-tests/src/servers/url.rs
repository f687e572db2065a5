//! Adds options to URLs.

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
