//! Parses connection strings the same way for every store:
//! `scheme://user:password@host:port,host:port/path?option=value&…`.
//!
//! This module knows no store: each provider defines its schemes, defaults and options. No error
//! about an invalid string repeats the part before the `?` or the value of an option, because these
//! can contain a password (clause T15).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::table::{Operation, TableError, TableErrorKind};

/// A parsed and decoded connection string. `%hh` stands for one byte everywhere except in the
/// scheme.
///
/// ```
/// use membership_core::ConnectionString;
///
/// let text = "postgres://ops:p%40ss@a.example:5433,[::1]/app?pooler&operation_timeout=3s";
/// let parts = ConnectionString::parse("postgres", &["postgres", "postgresql"], text)?;
/// assert_eq!((parts.user.as_deref(), parts.password.as_deref()), (Some("ops"), Some("p@ss")));
/// assert_eq!(parts.hosts, [("a.example".to_owned(), Some(5433)), ("::1".to_owned(), None)]);
/// assert_eq!(parts.path.as_deref(), Some("app"));
/// for option in &parts.options {
///     match option.name() {
///         "pooler" => assert!(option.flag()?),
///         "operation_timeout" => assert_eq!(option.duration()?.as_secs(), 3),
///         _ => return Err(option.unknown("pooler and operation_timeout")),
///     }
/// }
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionString {
    /// The scheme in lower case, without `://`.
    pub scheme: String,
    /// The user name; `None` when the string has no user name or an empty one.
    pub user: Option<String>,
    /// The password; `None` when the string has no colon before the `@`.
    pub password: Option<String>,
    /// Host names or addresses, IPv6 without brackets, each with its port if the string has one.
    pub hosts: Vec<(String, Option<u16>)>,
    /// The part between the first `/` after the hosts and the `?`, without that `/`; `None` when it
    /// is empty.
    pub path: Option<String>,
    /// The options after the `?`, in their order.
    pub options: Vec<ConnectionOption>,
}

/// One decoded option of a connection string. An option without `=` has the value `true`.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionOption {
    store: &'static str,
    name: String,
    value: String,
}

impl ConnectionString {
    /// Parses a string whose scheme is one of `schemes` (in lower case, without `://`). Errors name
    /// `store` as the store.
    ///
    /// # Errors
    /// `Configuration`: another scheme, an invalid port, an IPv6 address without brackets, or `%hh`
    /// codes that are not valid text.
    pub fn parse(store: &'static str, schemes: &[&str], text: &str) -> Result<Self, TableError> {
        let (mut parts, place) = Self::begin(store, schemes, text, "://")?;
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let (login, hosts) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let decode = |text: &str| decode(text).map_err(|message| wrong(store, message));
        if let Some(login) = login {
            let (user, password) = login
                .split_once(':')
                .map_or((login, None), |(user, password)| (user, Some(password)));
            parts.user = some(decode(user)?);
            parts.password = password.map(decode).transpose()?;
        }
        parts.path = some(decode(path)?);
        for host in hosts.split(',').filter(|h| !h.is_empty()) {
            parts
                .hosts
                .push(host_and_port(host).map_err(|message| wrong(store, message))?);
        }
        Ok(parts)
    }

    /// Parses a string for a store that is a file: the part between `scheme:` or `scheme://` and
    /// the `?` is the file's path.
    ///
    /// # Errors
    /// The errors of [`parse`](Self::parse).
    pub fn parse_file(
        store: &'static str,
        schemes: &[&str],
        text: &str,
    ) -> Result<Self, TableError> {
        let (mut parts, place) = Self::begin(store, schemes, text, ":")?;
        let place = place.strip_prefix("//").unwrap_or(place);
        parts.path = some(decode(place).map_err(|message| wrong(store, message))?);
        Ok(parts)
    }

    /// The hosts as `host:port`, IPv6 in brackets. Hosts without a port get `default_port`.
    #[must_use]
    pub fn addresses(&self, default_port: u16) -> Vec<String> {
        let shown = |(host, port): &(String, Option<u16>)| {
            let port = port.unwrap_or(default_port);
            if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        };
        self.hosts.iter().map(shown).collect()
    }

    /// Splits off the scheme and the options; returns them with the text between.
    fn begin<'a>(
        store: &'static str,
        schemes: &[&str],
        text: &'a str,
        mark: &str,
    ) -> Result<(Self, &'a str), TableError> {
        let known = |scheme: &str| schemes.iter().any(|one| one.eq_ignore_ascii_case(scheme));
        let Some((scheme, rest)) = text.split_once(mark).filter(|(scheme, _)| known(scheme)) else {
            let all: Vec<String> = schemes
                .iter()
                .map(|scheme| format!("`{scheme}{mark}`"))
                .collect();
            return Err(wrong(
                store,
                format!("a connection string starts with {}", all.join(" or ")),
            ));
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = Vec::new();
        for option in query.split('&').filter(|o| !o.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, "true"));
            let decode = |text: &str| decode(text).map_err(|message| wrong(store, message));
            options.push(ConnectionOption {
                store,
                name: decode(name)?,
                value: decode(value)?,
            });
        }
        let scheme = scheme.to_ascii_lowercase();
        Ok((
            Self {
                scheme,
                user: None,
                password: None,
                hosts: Vec::new(),
                path: None,
                options,
            },
            place,
        ))
    }
}

impl ConnectionOption {
    /// The name of the option.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value as text.
    #[must_use]
    pub fn text(&self) -> String {
        self.value.clone()
    }

    /// The value as `true` or `false`.
    ///
    /// # Errors
    /// `Configuration`: the value is neither.
    pub fn flag(&self) -> Result<bool, TableError> {
        self.parsed("true or false")
    }

    /// The value as a whole number of type `T`.
    ///
    /// # Errors
    /// `Configuration`: the value is not a whole number or does not fit `T`.
    pub fn number<T: FromStr>(&self) -> Result<T, TableError> {
        self.parsed("a whole number")
    }

    /// The value as a duration with a unit, such as `3s` or `500ms`.
    ///
    /// # Errors
    /// `Configuration`: the value is not a duration.
    pub fn duration(&self) -> Result<Duration, TableError> {
        humantime::parse_duration(&self.value).map_err(|_| self.wrong("a time such as 3s"))
    }

    /// The value as one of these words, without regard to case.
    ///
    /// # Errors
    /// `Configuration`: the value is another word.
    pub fn one_of<T: Clone>(&self, words: &[(&str, T)]) -> Result<T, TableError> {
        let found = words
            .iter()
            .find(|(word, _)| word.eq_ignore_ascii_case(&self.value));
        found.map(|(_, meaning)| meaning.clone()).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(&either(&words))
        })
    }

    /// The value parsed by [`FromStr`]. `what` describes the expected value in the error.
    ///
    /// # Errors
    /// `Configuration`: the value cannot be parsed.
    pub fn parsed<T: FromStr>(&self, what: &str) -> Result<T, TableError> {
        self.value.parse().map_err(|_| self.wrong(what))
    }

    /// The error for an option with a wrong value; `what` describes the expected value.
    #[must_use]
    pub fn wrong(&self, what: &str) -> TableError {
        wrong(self.store, format!("option `{}` is {what}", self.short()))
    }

    /// The error for an unknown option; `there_are` lists the known ones.
    #[must_use]
    pub fn unknown(&self, there_are: &str) -> TableError {
        wrong(
            self.store,
            format!("`{}` is no option: there are {there_are}", self.short()),
        )
    }

    /// The name, cut to a length that fits one line.
    fn short(&self) -> String {
        self.name
            .chars()
            .filter(|c| !c.is_control())
            .take(40)
            .collect()
    }
}

/// Omits the user, the password and the values of options (clause T15).
impl fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ConnectionString");
        shown
            .field("scheme", &self.scheme)
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .field("options", &self.options);
        shown.finish_non_exhaustive()
    }
}

/// Shows only the name (clause T15).
impl fmt::Debug for ConnectionOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

fn wrong(store: &'static str, message: impl Into<String>) -> TableError {
    TableError::new(
        TableErrorKind::Configuration,
        Operation::Connect,
        store,
        message,
    )
}

fn either(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn host_and_port(text: &str) -> Result<(String, Option<u16>), &'static str> {
    const PORT: &str = "a port is a number from 1 to 65535";
    let port = |text: &str| text.parse().ok().filter(|p| *p > 0).ok_or(PORT);
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or("an IPv6 address in a connection string has no closing bracket")?;
        return match rest.strip_prefix(':') {
            Some(p) => Ok((decode(host)?, Some(port(p)?))),
            None if rest.is_empty() => Ok((decode(host)?, None)),
            None => Err(PORT),
        };
    }
    match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') => {
            Err("an IPv6 address in a connection string stands in brackets, as [::1]")
        }
        Some((host, p)) => Ok((decode(host)?, Some(port(p)?))),
        None => Ok((decode(text)?, None)),
    }
}

/// Decodes `%hh` to one byte.
fn decode(text: &str) -> Result<String, &'static str> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut digit = || {
            bytes
                .next()
                .and_then(|d| char::from(d).to_digit(16))
                .and_then(|d| u8::try_from(d).ok())
        };
        match (digit(), digit()) {
            (Some(high), Some(low)) => out.push(high << 4 | low),
            _ => {
                return Err("a % in a connection string is not followed by two hexadecimal digits");
            }
        }
    }
    String::from_utf8(out).map_err(|_| "the %-codes of a connection string are not UTF-8")
}

#[cfg(test)]
mod tests;
