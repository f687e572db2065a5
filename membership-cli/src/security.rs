//! How a silo of this program protects its connections: from the configuration file's table
//! `[security]` and from the command line.

use std::path::PathBuf;

use clap::ValueEnum;
use membership::transport::{Certificates, Secret, Security};

use crate::exit::Failure;

/// What certificates of other silos must name besides the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Bind {
    /// The address at which they are dialled: the default.
    Address,
    /// Nothing.
    Cluster,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Table,
    None,
}

/// The table of the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SecurityTable {
    mode: Mode,
    secret_file: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_bind: Option<Bind>,
    tls_optional: bool,
}

/// The options of the command line, which have precedence.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SecurityArgs {
    /// A file of keys that every silo needs besides the table, one per line; see docs/security.md
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    secret_file: Option<PathBuf>,
    /// Certificates of an authority (PEM): every silo needs one of its certificates; see
    /// docs/security.md
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    tls_ca: Option<PathBuf>,
    /// This silo's certificate, and those between it and the authority (PEM)
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    tls_cert: Option<PathBuf>,
    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    tls_key: Option<PathBuf>,
    /// What certificates must name besides the cluster: the address that is dialled, or nothing.
    /// Default: address
    #[arg(long)]
    tls_bind: Option<Bind>,
    /// Believe silos without a certificate too, while a cluster is on its way to certificates
    #[arg(long)]
    tls_optional: bool,
    /// Plain TCP between silos instead of TLS: whoever reaches the port can end the cluster. Only for
    /// networks that nobody else can reach; all silos need the same
    #[arg(long)]
    insecure: bool,
}

impl SecurityArgs {
    /// Whether the command line says that nobody else reaches the network.
    #[cfg(feature = "http")]
    pub(crate) const fn insecure(&self) -> bool {
        self.insecure
    }
}

/// What protects connections whose other end is a member without a table, from the command line
/// alone.
#[cfg(feature = "gossip")]
pub(crate) fn without_table(args: SecurityArgs) -> Result<Security, Failure> {
    SecurityTable::default().with(args)
}

impl SecurityTable {
    /// Reads the files that are named.
    pub(crate) fn with(self, args: SecurityArgs) -> Result<Security, Failure> {
        let mut security = match (self.mode, args.insecure) {
            (_, true) => Security::insecure(),
            (Mode::Table, false) => Security::table(),
            (Mode::None, false) => Security::none(),
        };
        if let Some(file) = args.secret_file.or(self.secret_file) {
            let secret = Secret::file(file).map_err(|e| Failure::usage(e.to_string()))?;
            security = security.with_secret(secret);
        }
        let files = (
            args.tls_ca.or(self.tls_ca),
            args.tls_cert.or(self.tls_cert),
            args.tls_key.or(self.tls_key),
        );
        let mut certificates = match files {
            (None, None, None) => {
                return match args.tls_optional
                    || self.tls_optional
                    || args.tls_bind.or(self.tls_bind).is_some()
                {
                    // Whoever writes this believes that the silo has certificates.
                    true => Err(Failure::usage(
                        "--tls-bind and --tls-optional mean nothing without certificates: give --tls-ca, --tls-cert and --tls-key too, or leave them out (tls_bind and tls_optional in [security])",
                    )),
                    false => Ok(security),
                };
            }
            (Some(authority), Some(certificate), Some(key)) => {
                Certificates::files(authority, certificate, key)
                    .map_err(|e| Failure::usage(e.to_string()))?
            }
            _ => {
                return Err(Failure::usage(
                    "certificates need three files: --tls-ca, --tls-cert and --tls-key, or tls_ca, tls_cert and tls_key in [security]",
                ));
            }
        };
        if args.tls_bind.or(self.tls_bind) == Some(Bind::Cluster) {
            certificates = certificates.at_any_address();
        }
        if args.tls_optional || self.tls_optional {
            certificates = certificates.optional();
        }
        Ok(security.with_certificates(certificates))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> SecurityTable {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn none_is_for_loopback_unless_the_command_line_says_so() {
        let none = table("mode = \"none\"");
        let args = SecurityArgs::default();
        assert_eq!(none.clone().with(args.clone()).unwrap(), Security::none());
        let args = SecurityArgs {
            insecure: true,
            ..args
        };
        assert_eq!(none.with(args).unwrap(), Security::insecure());
    }

    #[test]
    fn what_needs_certificates_is_refused_without() {
        for text in ["tls_optional = true", "tls_bind = \"address\""] {
            let error = table(text).with(SecurityArgs::default()).unwrap_err();
            assert!(error.message.contains("--tls-ca"), "{}", error.message);
        }
        for args in [
            SecurityArgs {
                tls_bind: Some(Bind::Cluster),
                ..SecurityArgs::default()
            },
            SecurityArgs {
                tls_optional: true,
                insecure: true,
                ..SecurityArgs::default()
            },
        ] {
            assert!(table("").with(args).is_err());
        }
    }

    #[test]
    fn certificates_need_three_files() {
        let two = table("tls_ca = \"a\"\ntls_cert = \"b\"");
        let error = two.clone().with(SecurityArgs::default()).unwrap_err();
        assert!(error.message.contains("--tls-key"), "{}", error.message);
        let args = SecurityArgs {
            tls_key: Some("/no/such/key".into()),
            ..SecurityArgs::default()
        };
        let error = two.with(args).unwrap_err();
        assert!(error.message.contains("No such file"), "{}", error.message);
    }
}
