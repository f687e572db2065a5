//! Addresses of database servers: `scheme://user:password@host:port,host:port/database?option=value&…`.
//!
//! Nothing that is said about a bad one repeats what stands before the `?`: a password may be in it (clause T15).

use std::fmt;

/// A connection string, taken apart and decoded.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Names or addresses, IPv6 without brackets, each with its port where one is given.
    pub(crate) hosts: Vec<(String, Option<u16>)>,
    pub(crate) database: Option<String>,
    pub(crate) options: Vec<(String, String)>,
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Url").field("hosts", &self.hosts).field("database", &self.database).finish_non_exhaustive()
    }
}

impl Url {
    /// Takes apart what comes after `scheme:`, with or without `//`.
    ///
    /// # Errors
    /// A sentence that says what is wrong and shows no part of what may be a secret.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix("//").unwrap_or(text);
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (login, hosts) = authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let mut url = Self::default();
        if let Some(login) = login {
            let (user, password) = login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
            url.user = some(decode(user)?);
            url.password = password.map(decode).transpose()?;
        }
        url.database = some(decode(database)?);
        for host in hosts.split(',').filter(|h| !h.is_empty()) {
            url.hosts.push(host_and_port(host)?);
        }
        for option in query.split('&').filter(|o| !o.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, "true"));
            url.options.push((decode(name)?, decode(value)?));
        }
        Ok(url)
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn host_and_port(text: &str) -> Result<(String, Option<u16>), String> {
    let no_port = || "a port in the URL is a number from 1 to 65535".to_owned();
    let port = |text: &str| text.parse().ok().filter(|p| *p > 0).ok_or_else(no_port);
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("an IPv6 address in the URL has no closing bracket")?;
        return match rest.strip_prefix(':') {
            Some(p) => Ok((decode(host)?, Some(port(p)?))),
            None if rest.is_empty() => Ok((decode(host)?, None)),
            None => Err(no_port()),
        };
    }
    match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') => Err("an IPv6 address in the URL stands in brackets: [::1]:5432".to_owned()),
        Some((host, p)) => Ok((decode(host)?, Some(port(p)?))),
        None => Ok((decode(text)?, None)),
    }
}

/// `%hh` stands for a byte.
///
/// # Errors
/// A `%` without two digits, or bytes that are no text.
pub(crate) fn decode(text: &str) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut digit = || bytes.next().and_then(|d| char::from(d).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        match (digit(), digit()) {
            (Some(high), Some(low)) => out.push(high << 4 | low),
            _ => return Err("a % in the URL is not followed by two hexadecimal digits".to_owned()),
        }
    }
    String::from_utf8(out).map_err(|_| "the %-codes of the URL are not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_apart_what_people_write() {
        let url = Url::parse("//ops:p%40ss:w@a.example:5433,[::1]:5434,b/my%20db?x=1&flag&y=%3D").unwrap();
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("ops"), Some("p@ss:w")));
        let hosts = [("a.example".to_owned(), Some(5433)), ("::1".to_owned(), Some(5434)), ("b".to_owned(), None)];
        assert_eq!((url.hosts.as_slice(), url.database.as_deref()), (hosts.as_slice(), Some("my db")));
        let options: Vec<_> = url.options.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(options, [("x", "1"), ("flag", "true"), ("y", "=")]);
        assert_eq!(Url::parse("///db").unwrap().database.as_deref(), Some("db"));
        assert_eq!(Url::parse("").unwrap(), Url::default());
        assert!(!format!("{url:?}").contains("p@ss"));
    }

    #[test]
    fn says_what_is_wrong_and_shows_nothing() {
        for (text, why) in [
            ("//u:secret@h:x/d", "port"),
            ("//u:secret@h:0/d", "port"),
            ("//u:secret@::1/d", "brackets"),
            ("//u:secret@[::1/d", "closing bracket"),
            ("//u:secret%zz@h/d", "hexadecimal"),
            ("//u:secret%ff@h/d", "UTF-8"),
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
    }
}
