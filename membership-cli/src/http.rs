//! `membership silo --http`: who may read the silo over HTTP.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use membership::http::{Exporter, HttpError, Options, Server, ServerTls, Token};

use crate::exit::{Exit, Failure};
use crate::text::ip_and_port;

/// The options of the command line.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct HttpArgs {
    /// Where to answer HTTP: the page /, /livez, /readyz, /metrics, /api/v1/…; port 0 is any free one. Elsewhere
    /// than on loopback it needs --http-token-file and --http-tls-…
    #[arg(long, value_name = "IP:PORT", value_parser = ip_and_port)]
    http: Option<SocketAddr>,
    /// A host name by which clients may ask for it, besides IP addresses and localhost; may be
    /// repeated
    #[arg(long, value_name = "NAME", requires = "http", value_parser = host)]
    http_name: Vec<String>,
    /// A file of tokens, one per line, of which a client needs one for all but /livez and /readyz
    #[arg(long, value_name = "FILE", requires = "http")]
    http_token_file: Option<PathBuf>,
    /// The certificate of HTTP, and those between it and its authority (PEM)
    #[arg(long, value_name = "FILE", requires = "http_tls_key")]
    http_tls_cert: Option<PathBuf>,
    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "http_tls_cert")]
    http_tls_key: Option<PathBuf>,
    /// Answer HTTP at any address without a token or without TLS: for networks that nobody else
    /// reaches, and behind a proxy that has both. --insecure includes it
    #[arg(long, requires = "http")]
    http_insecure: bool,
}

/// What a request names has no port and no path; a name that has would never match.
fn host(text: &str) -> Result<String, String> {
    match !text.is_empty() && !text.contains([':', '/', ' ', '@']) {
        true => Ok(text.to_owned()),
        false => Err("write a host name alone, for example silo.example".to_owned()),
    }
}

impl HttpArgs {
    /// Starts the server, if one is asked for. Call it before the silo starts, so that its metrics
    /// are complete.
    pub(crate) fn start(self, insecure: bool) -> Result<Option<Server>, Failure> {
        match self.http {
            Some(address) => self.listen([address], insecure).map(Some),
            None if self.http_tls_cert.is_some() => Err(Failure::usage(
                "--http-tls-cert and --http-tls-key need --http",
            )),
            None => Ok(None),
        }
    }

    /// Starts the server at the address asked for, or else at the first of these that nobody has.
    pub(crate) fn start_at_first(
        self,
        addresses: impl IntoIterator<Item = SocketAddr>,
        insecure: bool,
    ) -> Result<Server, Failure> {
        match self.http {
            Some(address) => self.listen([address], insecure),
            None => self.listen(addresses, insecure),
        }
    }

    /// Tries one address after the other: to look whether one is free and to take it later would let
    /// another process take it in between.
    fn listen(
        self,
        addresses: impl IntoIterator<Item = SocketAddr>,
        insecure: bool,
    ) -> Result<Server, Failure> {
        let mut options = Options::new().metrics(Exporter::install().map_err(failed)?);
        for name in self.http_name {
            options = options.allow_name(name);
        }
        if let Some(file) = self.http_token_file {
            options = options.token(Token::file(file).map_err(|e| failed(e.into()))?);
        }
        let tls = self.http_tls_cert.zip(self.http_tls_key);
        let tls = tls.map(|(certificate, key)| ServerTls::files(certificate, key));
        let tls = tls.transpose().map_err(failed)?;
        let mut taken = None;
        for address in addresses {
            let (options, tls) = (options.clone(), tls.clone());
            let server = match insecure || self.http_insecure {
                true => Server::start_open(address, options, tls),
                false => Server::start(address, options, tls),
            };
            match server {
                Err(HttpError::Bind { address, source }) if is_taken(&source) => {
                    taken = Some(HttpError::Bind { address, source });
                }
                server => return server.map_err(failed),
            }
        }
        Err(taken.map_or_else(
            || Failure::new(Exit::Failed, "there is no address for HTTP"),
            failed,
        ))
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

fn failed(error: HttpError) -> Failure {
    match &error {
        HttpError::Open { address } => Failure::usage(format!(
            "--http {address} is not a loopback address: give --http-token-file, --http-tls-cert and --http-tls-key, or --http-insecure if nobody else reaches that network"
        )),
        HttpError::Tls(why) => Failure::usage(format!("--http-tls-cert, --http-tls-key: {why}")),
        HttpError::Token(why) => Failure::usage(format!("--http-token-file: {why}")),
        // As with --listen: another process may have the port.
        HttpError::Bind { .. } => Failure::new(Exit::CannotJoin, format!("--http: {error}")),
        _ => Failure::new(Exit::Failed, error.to_string()),
    }
}
