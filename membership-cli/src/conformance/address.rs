//! A store's address, parsed so that host, user or options can be replaced. Only for one plain
//! server: with several hosts, with discovery or with certificates, a proxy's address would not
//! work.

use std::net::SocketAddr;

/// Schemes of stores with one server at the address, with the default port.
const PLAIN: [(&str, u16); 12] = [
    ("redis", 6379),
    ("postgres", 5432),
    ("postgresql", 5432),
    ("mssql", 1433),
    ("mysql", 3306),
    ("mariadb", 3306),
    ("etcd", 2379),
    ("consul", 8500),
    ("nats", 4222),
    ("zk", 2181),
    ("mongodb", 27_017),
    ("cassandra", 9042),
];
/// Schemes of stores whose server is in the option `endpoint`: `http://host:port`.
const ENDPOINT: [&str; 2] = ["dynamodb", "azure-table"];
/// Schemes whose servers refuse a user that does not exist.
const USERS: [&str; 10] = [
    "redis",
    "postgres",
    "postgresql",
    "mssql",
    "mysql",
    "mariadb",
    "etcd",
    "nats",
    "mongodb",
    "cassandra",
];

/// `scheme://user:password@host:port/rest`, or `scheme://user:password@place/rest` with the host in
/// an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    host: String,
    port: u16,
    /// What is at the place of the host where that is in an option.
    place: Option<String>,
    rest: String,
}

impl Address {
    /// None unless it is the address of one plain server.
    pub fn parse(url: &str) -> Option<Self> {
        let (scheme, after) = url.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let end = after.find(['/', '?', '#']).unwrap_or(after.len());
        let (authority, rest) = after.split_at(end);
        // A password may hold an @, a host cannot.
        let (login, authority) = authority
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
        let has_endpoint = ENDPOINT.contains(&scheme.as_str());
        let default_port = match has_endpoint {
            true => 80,
            false => PLAIN.iter().find(|(plain, _)| *plain == scheme)?.1,
        };
        let endpoint = match has_endpoint {
            true => decode(option(rest, "endpoint")?),
            false => authority.to_owned(),
        };
        let endpoint = match has_endpoint {
            true => endpoint.strip_prefix("http://")?.split('/').next()?,
            false => &endpoint,
        };
        let (host, port) = match endpoint.rsplit_once(':') {
            // The colons of an IPv6 address are within its brackets.
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (endpoint, default_port),
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
            place: has_endpoint.then(|| authority.to_owned()),
            rest: rest.to_owned(),
        })
    }

    /// Whether the server refuses a user that does not exist.
    pub fn has_users(&self) -> bool {
        USERS.contains(&self.scheme.as_str())
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
        const OFF: [&str; 6] = ["disable", "disabled", "false", "off", "no", "none"];
        query.split('&').any(|option| {
            let (name, value) = option.split_once('=').unwrap_or((option, "true"));
            let (name, value) = (name.to_ascii_lowercase(), value.to_ascii_lowercase());
            match name.as_str() {
                // Otherwise encrypted, but with whomever it is: the bytes pass through.
                "sslmode" => value == "verify-full",
                "ssl-mode" => value == "verify_identity",
                "sslrootcert" | "ssl-ca" => false,
                _ => {
                    (name.contains("ssl") || name.contains("tls")) && !OFF.contains(&value.as_str())
                }
            }
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
    pub fn at(&self, address: SocketAddr) -> String {
        let Some(place) = &self.place else {
            return self.with(self.user.as_deref(), &address.to_string());
        };
        let mut moved = self.clone();
        if let Some(endpoint) = option(&self.rest, "endpoint") {
            let decoded = decode(endpoint);
            let after = decoded.strip_prefix("http://").unwrap_or(&decoded);
            let path = after.split_once('/').map(|(_, path)| format!("/{path}"));
            let there = format!("endpoint=http://{address}{}", path.unwrap_or_default());
            let here = format!("endpoint={endpoint}");
            moved.rest = self.rest.replacen(&here, &there, 1);
        }
        moved.with(self.user.as_deref(), place)
    }

    /// The same with an operation timeout of a few seconds, unless the address has one: for cases
    /// that wait for the timeout again and again. The client goes to this server alone, and speaks
    /// by itself seldom enough.
    pub fn with_short_timeout(mut self) -> Self {
        let own = match self.scheme.as_str() {
            "mongodb" => with_option(&self.rest, "directConnection", "true"),
            "zk" => with_option(&self.rest, "session_timeout", "10s"),
            _ => self.rest,
        };
        self.rest = with_option(&own, "operation_timeout", "2s");
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

/// Any store's URL with an operation timeout of a few seconds, unless it has one.
pub(crate) fn with_short_timeout(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#']);
    let (before, rest) = url.split_at(end.map_or(url.len(), |at| start + at));
    before.to_owned() + &with_option(rest, "operation_timeout", "2s")
}

/// The end of a URL with this option, unless it has one of that name.
fn with_option(rest: &str, name: &str, value: &str) -> String {
    if option(rest, name).is_some() {
        return rest.to_owned();
    }
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let joint = if query.is_empty() { "" } else { "&" };
    // A slash ends the host where nothing else does.
    let before = if before.is_empty() { "/" } else { before };
    format!("{before}?{query}{joint}{name}={value}")
}

/// The value of an option, as it is written.
fn option<'r>(rest: &'r str, name: &str) -> Option<&'r str> {
    let (_, query) = rest.split_once('?')?;
    query
        .split('&')
        .filter_map(|one| one.split_once('='))
        .find_map(|(of, value)| (of == name).then_some(value))
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
    fn any_url_gets_a_short_timeout() {
        for (url, there) in [
            ("etcd+https://h", "etcd+https://h/?operation_timeout=2s"),
            (
                "dynamodb://k:s@r/t?a=b",
                "dynamodb://k:s@r/t?a=b&operation_timeout=2s",
            ),
            ("x://h?operation_timeout=9s", "x://h?operation_timeout=9s"),
        ] {
            assert_eq!(with_short_timeout(url), there);
        }
    }

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
            ("zk://u:p@h/app", "zk://u:p@127.0.0.1:9/app"),
            ("consul://:token@h", "consul://:token@127.0.0.1:9"),
            (
                "nats://u:p@h?replicas=1",
                "nats://u:p@127.0.0.1:9?replicas=1",
            ),
            (
                "dynamodb://k:s@us-east-1/t?endpoint=http://h:8000&create=false",
                "dynamodb://k:s@us-east-1/t?endpoint=http://127.0.0.1:9&create=false",
            ),
            (
                "azure-table://a/t?account_key=x&endpoint=http%3A%2F%2Fh:1/a",
                "azure-table://a/t?account_key=x&endpoint=http://127.0.0.1:9/a",
            ),
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
                "mongodb://h/d",
                "mongodb://h:27017/d?directConnection=true&operation_timeout=2s",
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
            "mongodb://a,b/d",
            "mongodb+srv://h/d",
            "etcd+https://h",
            "dynamodb://us-east-1/t",
            "dynamodb://us-east-1/t?endpoint=https://h",
            "azure-table://a/t?account_key=x",
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
            ("postgres://h/d?sslmode=require", false),
            ("postgres://h/d?sslmode=verify-ca&sslrootcert=/ca", false),
            ("mysql://h/d?ssl-mode=required", false),
            ("mysql://h/d?ssl-ca=/ca&ssl-mode=VERIFY_IDENTITY", true),
            ("mysql://h/d?tls=false", false),
            ("redis://h", false),
            ("mysql://h/d?a=b&ssl", true),
        ] {
            assert_eq!(address(url).checks_certificates(), proves, "{url}");
        }
    }
}
