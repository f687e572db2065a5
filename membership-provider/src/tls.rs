//! PEM files for TLS: options, checks, and what a client library needs of them.

use std::path::{Path, PathBuf};

use membership_core::{ConnectionOption, Operation, TableError, TableErrorKind};

/// The bytes of a certificate file, and of the file with its key.
pub type Identity = (Vec<u8>, Vec<u8>);

/// The PEM files that a configuration names.
///
/// ```
/// use membership_core::ConnectionString;
/// use membership_provider::TlsFiles;
///
/// let url = ConnectionString::parse("mystore", &["mystore"], "mystore://h?tls_ca=/ca.pem")?;
/// let mut files = TlsFiles::default();
/// assert!(files.set(&url.options[0]));
/// files.validate("mystore", true, "tls=true")?;
/// assert!(files.validate("mystore", false, "tls=true").unwrap_err().to_string().contains("use tls=true"));
/// # Ok::<(), membership_core::TableError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authorities to trust instead of the operating system's.
    pub ca: Option<PathBuf>,
    /// The certificate that this client shows.
    pub certificate: Option<PathBuf>,
    /// The private key of that certificate.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Takes the options `tls_ca`, `tls_cert` and `tls_key`; `false` for another option.
    pub fn set(&mut self, option: &ConnectionOption) -> bool {
        let file = match option.name() {
            "tls_ca" => &mut self.ca,
            "tls_cert" => &mut self.certificate,
            "tls_key" => &mut self.key,
            _ => return false,
        };
        *file = Some(option.text().into());
        true
    }

    /// Whether no file is named.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ca.is_none() && self.certificate.is_none() && self.key.is_none()
    }

    /// Refuses files without encryption (`advice` says how to turn it on), and a certificate
    /// without a key or a key without one.
    ///
    /// # Errors
    /// `Configuration`
    pub fn validate(
        &self,
        store: &'static str,
        encrypted: bool,
        advice: &str,
    ) -> Result<(), TableError> {
        if !encrypted && !self.is_empty() {
            let message = format!(
                "certificate files are given, but the connection is not encrypted: use {advice}"
            );
            return Err(wrong(store, message));
        }
        if self.certificate.is_some() != self.key.is_some() {
            let message = "a client's certificate and its key come together: tls_cert and tls_key";
            return Err(wrong(store, message));
        }
        Ok(())
    }

    /// The content of the file with the authorities, if one is named.
    ///
    /// # Errors
    /// `Configuration`: the file cannot be read.
    pub fn read_ca(&self, store: &'static str) -> Result<Option<Vec<u8>>, TableError> {
        self.ca
            .as_ref()
            .map(|path| read_file(store, path))
            .transpose()
    }

    /// The contents of certificate and key, if both are named.
    ///
    /// # Errors
    /// `Configuration`: a file cannot be read.
    pub fn read_identity(&self, store: &'static str) -> Result<Option<Identity>, TableError> {
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Ok(Some((
                read_file(store, certificate)?,
                read_file(store, key)?,
            ))),
            _ => Ok(None),
        }
    }

    /// That the file with the authorities holds none.
    #[must_use]
    pub fn bad_ca(&self, store: &'static str) -> TableError {
        let path = self.ca.as_deref().unwrap_or(Path::new("")).display();
        wrong(store, format!("{path} holds no certificate in PEM form"))
    }

    /// That the files of certificate and key are none, or do not belong together.
    #[must_use]
    pub fn bad_identity(&self, store: &'static str) -> TableError {
        let path = |path: &Option<PathBuf>| path.clone().unwrap_or_default();
        let (certificate, key) = (path(&self.certificate), path(&self.key));
        let message = format!(
            "{} and {} are no certificate and key in PEM form",
            certificate.display(),
            key.display()
        );
        wrong(store, message)
    }
}

/// The content of a file that the configuration names.
///
/// ```
/// use membership_provider::read_file;
/// let error = read_file("mystore", "/no/such/file").unwrap_err();
/// assert!(error.to_string().contains("/no/such/file"));
/// ```
///
/// # Errors
/// `Configuration`: the file cannot be read.
pub fn read_file(store: &'static str, path: impl AsRef<Path>) -> Result<Vec<u8>, TableError> {
    let path = path.as_ref();
    std::fs::read(path).map_err(|e| {
        wrong(store, format!("{} cannot be read ({e})", path.display())).with_source(e)
    })
}

fn wrong(store: &'static str, message: impl Into<String>) -> TableError {
    TableError::new(
        TableErrorKind::Configuration,
        Operation::Connect,
        store,
        message,
    )
}

#[cfg(feature = "tls")]
pub use with_rustls::{install_crypto_provider, native_roots};

#[cfg(feature = "tls")]
mod with_rustls {
    use membership_core::TableError;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, RootCertStore};

    use super::{TlsFiles, wrong};

    /// Chooses aws-lc-rs for rustls, unless the process has chosen. Two linked crypto libraries
    /// make rustls panic where none is chosen.
    ///
    /// ```
    /// membership_provider::install_crypto_provider();
    /// assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    /// ```
    pub fn install_crypto_provider() {
        let _first = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }

    /// The certificates that the operating system trusts. `option` is the name of the option that
    /// gives a file instead.
    ///
    /// ```
    /// match membership_provider::native_roots("mystore", "tls_ca") {
    ///     Ok(roots) => assert!(!roots.is_empty()),
    ///     Err(e) => assert!(e.to_string().contains("tls_ca")),
    /// }
    /// ```
    ///
    /// # Errors
    /// `Configuration`: there are none.
    pub fn native_roots(store: &'static str, option: &str) -> Result<RootCertStore, TableError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let message =
                format!("this machine trusts no certificate authority: name a file with {option}");
            return Err(wrong(store, message));
        }
        Ok(roots)
    }

    impl TlsFiles {
        /// The authorities to trust: those of the file, or the operating system's.
        ///
        /// # Errors
        /// `Configuration`: a file that cannot be read or holds no certificate, or no authority at
        /// all.
        pub fn roots(&self, store: &'static str) -> Result<RootCertStore, TableError> {
            let Some(pem) = self.read_ca(store)? else {
                return native_roots(store, "tls_ca");
            };
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|_| self.bad_ca(store))?;
                roots.add(certificate).map_err(|_| self.bad_ca(store))?;
            }
            if roots.is_empty() {
                return Err(self.bad_ca(store));
            }
            Ok(roots)
        }

        /// A rustls configuration that checks the server's certificate and shows the client's,
        /// where one is named.
        ///
        /// # Errors
        /// `Configuration`: a file that cannot be used.
        pub fn client_config(&self, store: &'static str) -> Result<ClientConfig, TableError> {
            install_crypto_provider();
            let builder = ClientConfig::builder().with_root_certificates(self.roots(store)?);
            let Some((certificate, key)) = self.read_identity(store)? else {
                return Ok(builder.with_no_client_auth());
            };
            let bad = |_| self.bad_identity(store);
            let chain = CertificateDer::pem_slice_iter(&certificate)
                .collect::<Result<Vec<_>, _>>()
                .map_err(bad)?;
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(bad)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|_| self.bad_identity(store))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(ca: &str, certificate: &str, key: &str) -> TlsFiles {
        let some = |path: &str| (!path.is_empty()).then(|| path.into());
        TlsFiles {
            ca: some(ca),
            certificate: some(certificate),
            key: some(key),
        }
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let why = |files: &TlsFiles, encrypted| {
            let error = files.validate("test", encrypted, "test+tls://").err();
            error.map(|e| e.to_string()).unwrap_or_default()
        };
        assert_eq!(why(&files("", "", ""), false), "");
        assert_eq!(why(&files("/ca", "/c", "/k"), true), "");
        assert!(why(&files("/ca", "", ""), false).contains("use test+tls://"));
        assert!(why(&files("", "/c", ""), true).contains("come together"));
        assert!(why(&files("", "", "/k"), true).contains("come together"));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn bad_files_are_named() {
        for (files, why) in [
            (
                files("/no/such/file", "", ""),
                "/no/such/file cannot be read",
            ),
            (files("/dev/null", "", ""), "/dev/null holds no certificate"),
        ] {
            let error = files.client_config("test").unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
