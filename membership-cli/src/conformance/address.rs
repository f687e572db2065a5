//! A store's address, parsed so that host, user or options can be replaced. Only for one plain
//! server: with several hosts, with discovery or with certificates, a proxy's address would not
//! work.

use std::net::SocketAddr;

/// Schemes of stores with one server at the address, with the default port.
const PLAIN: [(&str, u16); 6] = [
    ("redis", 6379),
    ("postgres", 5432),
    ("postgresql", 5432),
    ("mssql", 1433),
    ("mysql", 3306),
    ("mariadb", 3306),
];

/// `scheme://user:password@host:port/rest`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    host: String,
    port: u16,
    rest: String,
}

impl Address {
    /// None unless it is the address of one plain server.
    pub fn parse(url: &str) -> Option<Self> {
        let (scheme, after) = url.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let (_, default_port) = PLAIN.iter().find(|(plain, _)| *plain == scheme)?;
        let end = after.find(['/', '?', '#']).unwrap_or(after.len());
        let (authority, rest) = after.split_at(end);
        // A password may hold an @, a host cannot.
        let (login, endpoint) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(login, endpoint)| {
                (Some(login), endpoint)
            });
        let (user, password) = match login.map(|login| {
            login
                .split_once(':')
                .map_or((login, None), |(u, p)| (u, Some(p)))
        }) {
            None => (None, None),
            Some((user, password)) => (Some(user.to_owned()), password.map(str::to_owned)),
        };
        let (host, port) = match endpoint.rsplit_once(':') {
            // The colons of an IPv6 address are within its brackets.
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (endpoint, *default_port),
        };
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        let one = !host.is_empty() && !host.contains([',', '%', '/']);
        one.then(|| Self {
            scheme,
            user,
            password,
            host: host.to_owned(),
            port,
            rest: rest.to_owned(),
        })
    }

    /// The password, decoded, if there is one.
    pub fn password(&self) -> Option<String> {
        self.password
            .as_deref()
            .filter(|p| !p.is_empty())
            .map(decode)
    }

    /// Whether TLS may check the host's name, which a proxy does not have.
    pub fn checks_certificates(&self) -> bool {
        let (_, query) = self.rest.split_once('?').unwrap_or_default();
        query.split('&').any(|option| {
            let (name, value) = option.split_once('=').unwrap_or((option, "true"));
            let (name, value) = (name.to_ascii_lowercase(), value.to_ascii_lowercase());
            (name.contains("ssl") || name.contains("tls"))
                && !["disable", "disabled", "false", "off", "no", "none"].contains(&value.as_str())
        })
    }

    /// The socket address of its server.
    pub async fn server(&self) -> std::io::Result<SocketAddr> {
        let mut found = tokio::net::lookup_host((self.host.as_str(), self.port)).await?;
        found
            .next()
            .ok_or_else(|| std::io::Error::other("the host has no address"))
    }

    /// The same server under another address.
    pub fn at(&self, endpoint: SocketAddr) -> String {
        self.with(self.user.as_deref(), &endpoint.to_string())
    }

    /// The same with an operation timeout of a few seconds, unless the address has one: for cases
    /// that wait for the timeout again and again.
    pub fn with_short_timeout(mut self) -> Self {
        const OPTION: &str = "operation_timeout";
        let (before, query) = self
            .rest
            .split_once('?')
            .unwrap_or((self.rest.as_str(), ""));
        if !query
            .split('&')
            .any(|option| option.split('=').next() == Some(OPTION))
        {
            let joint = if query.is_empty() { "" } else { "&" };
            // A slash ends the host where nothing else does.
            let before = if before.is_empty() { "/" } else { before };
            self.rest = format!("{before}?{query}{joint}{OPTION}=2s");
        }
        self
    }

    /// The same server for another user, with the same password.
    pub fn as_user(&self, user: &str) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        self.with(Some(user), &format!("{host}:{}", self.port))
    }

    fn with(&self, user: Option<&str>, endpoint: &str) -> String {
        let login = match (user, &self.password) {
            (None, _) => String::new(),
            (Some(user), None) => format!("{user}@"),
            (Some(user), Some(password)) => format!("{user}:{password}@"),
        };
        format!("{}://{login}{endpoint}{}", self.scheme, self.rest)
    }
}

/// Decodes `%hh`; leaves other text as it is.
fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after
            .get(..2)
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match hex {
            Some(byte) if *first == b'%' => {
                out.push(byte);
                rest = &after[2..];
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_plain_server_can_be_put_elsewhere() {
        let endpoint = SocketAddr::from(([127, 0, 0, 1], 9));
        for (url, there) in [
            ("redis://h", "redis://127.0.0.1:9"),
            (
                "redis://:se%40cret@h:1/2?x=y",
                "redis://:se%40cret@127.0.0.1:9/2?x=y",
            ),
            (
                "postgres://u:p@ss@db.example/app?sslmode=disable",
                "postgres://u:p@ss@127.0.0.1:9/app?sslmode=disable",
            ),
            ("MySQL://root@[::1]:3307/m", "mysql://root@127.0.0.1:9/m"),
            ("postgresql://[::1]", "postgresql://127.0.0.1:9"),
        ] {
            assert_eq!(Address::parse(url).unwrap().at(endpoint), there, "{url}");
        }
        assert_eq!(
            Address::parse("mysql://root:p@[::1]:3307/m")
                .unwrap()
                .as_user("x"),
            "mysql://x:p@[::1]:3307/m"
        );
    }

    #[test]
    fn impatience_is_no_reason_to_forget_what_was_asked_for() {
        for (url, same) in [
            ("redis://h", "redis://h:6379/?operation_timeout=2s"),
            (
                "redis://h/2?durability=kept",
                "redis://h:6379/2?durability=kept&operation_timeout=2s",
            ),
            (
                "postgres://u:p@h/d",
                "postgres://u:p@h:5432/d?operation_timeout=2s",
            ),
            (
                "mysql://u@h/d?operation_timeout=1s&create=false",
                "mysql://u@h:3306/d?operation_timeout=1s&create=false",
            ),
        ] {
            let address = Address::parse(url).unwrap().with_short_timeout();
            let endpoint = format!("{}:{}", address.host, address.port);
            assert_eq!(
                address.with(address.user.as_deref(), &endpoint),
                same,
                "{url}"
            );
        }
    }

    #[test]
    fn other_addresses_than_of_one_plain_server_are_not_parsed() {
        for url in [
            "sqlite:m.db",
            "memory:",
            "redis+sentinel://h",
            "rediss://h",
            "postgres://a,b/c",
            "postgres://%2Ftmp/x",
            "redis://",
            "redis://h:x",
        ] {
            assert_eq!(Address::parse(url), None, "{url}");
        }
    }

    #[test]
    fn passwords_and_certificates() {
        let address = |url| Address::parse(url).unwrap();
        assert_eq!(
            address("redis://:se%40cret%@h").password().as_deref(),
            Some("se@cret%")
        );
        assert_eq!(address("redis://u:@h").password(), None);
        for (url, proves) in [
            ("postgres://h/d?sslmode=verify-full", true),
            ("mysql://h/d?tls=false", false),
            ("redis://h", false),
            ("mysql://h/d?a=b&ssl", true),
        ] {
            assert_eq!(address(url).checks_certificates(), proves, "{url}");
        }
    }
}
