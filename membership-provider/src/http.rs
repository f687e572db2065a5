//! An HTTP client for stores that are spoken to over HTTP.

use membership_core::{Operation, TableError, TableErrorKind};
use reqwest::{Certificate, Client, ClientBuilder, Identity, redirect, retry};

use crate::{Timeouts, TlsFiles, causes, innermost, install_crypto_provider, one_line};

/// A client that sends every request once, follows no redirection and asks no proxy: only the
/// caller knows whether a request may be sent again. `tls` is `None` for plain HTTP.
///
/// ```
/// use membership_provider::{Timeouts, TlsFiles, http};
///
/// let builder = http::builder("mystore", &Timeouts::default(), Some(&TlsFiles::default()))?;
/// let client = http::build("mystore", builder)?;
/// # let _: reqwest::Client = client;
/// # Ok::<(), membership_core::TableError>(())
/// ```
///
/// # Errors
/// `Configuration`: a file that cannot be used.
pub fn builder(
    store: &'static str,
    timeouts: &Timeouts,
    tls: Option<&TlsFiles>,
) -> Result<ClientBuilder, TableError> {
    install_crypto_provider();
    let mut builder = Client::builder()
        .retry(retry::never())
        .redirect(redirect::Policy::none())
        .no_proxy()
        .http1_only()
        .connect_timeout(timeouts.connect())
        .tcp_nodelay(true);
    let Some(files) = tls else {
        // The operating system's certificates need not be read.
        return Ok(builder.tls_certs_only([]));
    };
    if let Some(pem) = files.read_ca(store)? {
        let trusted = Certificate::from_pem_bundle(&pem).unwrap_or_default();
        if trusted.is_empty() {
            return Err(files.bad_ca(store));
        }
        builder = builder.tls_certs_only(trusted);
    }
    if let Some((certificate, key)) = files.read_identity(store)? {
        let both = [certificate, b"\n".to_vec(), key].concat();
        let identity = Identity::from_pem(&both).map_err(|_| files.bad_identity(store))?;
        builder = builder.identity(identity);
    }
    Ok(builder)
}

/// The client of [`builder`].
///
/// # Errors
/// `Configuration`: no client can be made of it, for example because certificate and key do not
/// belong together.
pub fn build(store: &'static str, builder: ClientBuilder) -> Result<Client, TableError> {
    builder.build().map_err(|e| {
        let message = format!("no HTTP client can be made: {}", innermost(&e));
        error(store, TableErrorKind::Configuration, message)
    })
}

/// Why a request got no answer.
///
/// ```
/// use membership_provider::http::{self, NoAnswer};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), membership_core::TableError> {
/// let client = http::build("mystore", http::builder("mystore", &Default::default(), None)?)?;
/// let e = client.get("http://127.0.0.1:1/").send().await.expect_err("nothing listens there");
/// assert!(matches!(NoAnswer::from_error("mystore", &e, "mystore://"), NoAnswer::NotSent(_)));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum NoAnswer {
    /// The request was certainly not carried out.
    NotSent(TableError),
    /// It was sent, and nobody knows what became of it. What ended it, for
    /// [`unanswered`](crate::unanswered).
    Lost(String),
}

/// The error came while a connection was made.
#[derive(Clone, Copy)]
struct Connecting {
    encrypted: bool,
}

impl NoAnswer {
    /// What an error of the client means. `plain` is the store's scheme without TLS, for advice.
    #[must_use]
    pub fn from_error(store: &'static str, e: &reqwest::Error, plain: &str) -> Self {
        let encrypted = e.url().is_some_and(|url| url.scheme() == "https");
        let connecting = e.is_connect().then_some(Connecting { encrypted });
        // The URL contains any word that a cluster or a host is named after.
        let url = e.url().map(ToString::to_string).unwrap_or_default();
        let nameless = |text: String| match url.is_empty() {
            true => text,
            false => text.replace(&url, "URL"),
        };
        let causes: Vec<String> = causes(e).into_iter().map(nameless).collect();
        Self::from_causes(store, &causes, connecting, e.is_builder(), plain)
    }

    fn from_causes(
        store: &'static str,
        causes: &[String],
        connecting: Option<Connecting>,
        building: bool,
        plain: &str,
    ) -> Self {
        use TableErrorKind::{Configuration, Unavailable};
        let has = |words: &[&str]| {
            let has = |word: &&str| causes.iter().any(|text| text.contains(*word));
            words.iter().any(has)
        };
        let (encrypted, connecting) = (
            connecting.is_some_and(|c| c.encrypted),
            connecting.is_some(),
        );
        let last = causes.last().map(|text| one_line(text)).unwrap_or_default();
        let not_sent = |kind, message| Self::NotSent(error(store, kind, message));
        // A server refuses our certificate after the handshake, but before it reads a request.
        let alert = has(&[
            "CertificateRequired",
            "certificate required",
            "BadCertificate",
        ]) || (has(&["received fatal alert"])
            && (connecting || has(&["Certificate", "UnknownCA"])));
        if alert {
            let advice = "name a certificate that it accepts with tls_cert and tls_key";
            let message =
                format!("the server refuses this client's certificate ({last}): {advice}");
            return not_sent(Configuration, message);
        }
        if connecting && has(&["invalid peer certificate"]) {
            let advice =
                "name its authority with tls_ca, and connect by a name that is in the certificate";
            let message = format!("the server's certificate is not trusted ({last}): {advice}");
            return not_sent(Configuration, message);
        }
        if connecting && has(&["corrupt message", "InvalidContentType"]) {
            let message = format!("the server does not speak TLS on this port: use {plain}");
            return not_sent(Configuration, message);
        }
        if building {
            return not_sent(Configuration, format!("no request can be made ({last})"));
        }
        if connecting {
            // A server without TLS closes the connection; so does one that is stopping.
            let closed = has(&["handshake eof"]) || (encrypted && has(&["reset by peer"]));
            let advice = if closed {
                format!(": does it accept TLS? if not, use {plain}")
            } else {
                String::new()
            };
            let message = format!("the server cannot be reached ({last}){advice}");
            return not_sent(Unavailable, message);
        }
        Self::Lost(format!("the connection broke ({last})"))
    }
}

fn error(store: &'static str, kind: TableErrorKind, message: String) -> TableError {
    TableError::new(kind, Operation::Connect, store, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_certificates_are_named() {
        let files = |ca: &str, identity: &str| TlsFiles {
            ca: (!ca.is_empty()).then(|| ca.into()),
            certificate: (!identity.is_empty()).then(|| identity.into()),
            key: (!identity.is_empty()).then(|| identity.into()),
        };
        for (files, why) in [
            (files("/no/such/file", ""), "/no/such/file cannot be read"),
            (files("/dev/null", ""), "/dev/null holds no certificate"),
            (files("", "/dev/null"), "are no certificate and key"),
        ] {
            let error = builder("test", &Timeouts::default(), Some(&files)).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn only_a_request_that_was_not_sent_is_certain() {
        use TableErrorKind::{Configuration, Unavailable};
        for (cause, connecting, expected) in [
            ("Connection refused (os error 111)", true, Some(Unavailable)),
            ("tls handshake eof", true, Some(Unavailable)),
            (
                "invalid peer certificate: UnknownIssuer",
                true,
                Some(Configuration),
            ),
            (
                "received corrupt message of type InvalidContentType",
                true,
                Some(Configuration),
            ),
            (
                "received fatal alert: CertificateRequired",
                false,
                Some(Configuration),
            ),
            (
                "received fatal alert: UnknownCA",
                false,
                Some(Configuration),
            ),
            (
                "received fatal alert: HandshakeFailure",
                true,
                Some(Configuration),
            ),
            ("received fatal alert: InternalError", false, None),
            ("connection closed before message completed", false, None),
            ("Connection reset by peer (os error 104)", false, None),
        ] {
            let causes = ["error sending request".to_owned(), cause.to_owned()];
            let connecting = connecting.then_some(Connecting { encrypted: true });
            let kind = match NoAnswer::from_causes("test", &causes, connecting, false, "test://") {
                NoAnswer::NotSent(e) => Some(e.kind()),
                NoAnswer::Lost(why) => {
                    assert_eq!(why, format!("the connection broke ({cause})"));
                    None
                }
            };
            assert_eq!(kind, expected, "{cause}");
        }
        // A server without TLS closes the connection, with bytes of ours unread.
        let reset = ["Connection reset by peer (os error 104)".to_owned()];
        for encrypted in [true, false] {
            let connecting = Some(Connecting { encrypted });
            let why = match NoAnswer::from_causes("test", &reset, connecting, false, "test://") {
                NoAnswer::NotSent(e) => e.to_string(),
                NoAnswer::Lost(why) => panic!("{why}"),
            };
            assert_eq!(why.contains("use test://"), encrypted, "{why}");
        }
        let building = NoAnswer::from_causes("test", &[], None, true, "test://");
        assert!(matches!(building, NoAnswer::NotSent(e) if e.kind() == Configuration));
    }

    /// A cluster may have any name, and with many stores it is a part of the URL.
    #[tokio::test]
    async fn words_of_the_url_mean_nothing() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let closing = std::thread::spawn(move || {
            let (mut client, _) = server.accept().unwrap();
            std::io::Read::read(&mut client, &mut [0; 4096]).unwrap();
        });
        let client = build("test", builder("test", &Timeouts::default(), None).unwrap()).unwrap();
        let url = format!("http://{address}/CertificateRequired");
        let e = client.get(url).send().await.unwrap_err();
        closing.join().unwrap();
        let why = NoAnswer::from_error("test", &e, "test://");
        assert!(matches!(why, NoAnswer::Lost(_)), "{why:?}");
    }
}
