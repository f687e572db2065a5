//! Certificates for one server, valid while it runs: an authority, and the certificates that it
//! signs.

use std::path::{Path, PathBuf};

use super::error::LaunchError;

/// Files in PEM form.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Tls {
    /// The certificate of the authority, which a client must trust.
    pub ca: PathBuf,
    /// The server's certificate, for `localhost` and 127.0.0.1.
    pub certificate: PathBuf,
    /// The server's key.
    pub key: PathBuf,
    /// A client's certificate of the same authority, for servers that require one.
    pub client_certificate: PathBuf,
    /// The client's key.
    pub client_key: PathBuf,
}

impl Tls {
    pub(super) fn within(root: &Path) -> Self {
        let folder = root.join("tls");
        Self {
            ca: folder.join("ca.pem"),
            certificate: folder.join("server.pem"),
            key: folder.join("server.key"),
            client_certificate: folder.join("client.pem"),
            client_key: folder.join("client.key"),
        }
    }

    /// Writes the files. Only the server's user can read the server's key.
    #[cfg(feature = "tls")]
    pub(super) fn create(&self, user: Option<u32>) -> Result<(), LaunchError> {
        use std::os::unix::fs::{PermissionsExt as _, chown};

        use rcgen::{
            BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
        };

        let wrong = |error: rcgen::Error| {
            LaunchError::Install(format!("cannot create a certificate: {error}"))
        };
        let write = |path: &Path, text: &str, secret: bool| {
            std::fs::write(path, text).map_err(LaunchError::io("cannot write", path))?;
            if secret {
                let mode = std::fs::Permissions::from_mode(0o600);
                std::fs::set_permissions(path, mode)
                    .map_err(LaunchError::io("cannot protect", path))?;
            }
            Ok::<(), LaunchError>(())
        };
        if let Some(folder) = self.ca.parent() {
            std::fs::create_dir_all(folder).map_err(LaunchError::io("cannot make", folder))?;
        }
        let mut authority = CertificateParams::default();
        authority
            .distinguished_name
            .push(DnType::CommonName, "membership tests");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority_key = KeyPair::generate().map_err(wrong)?;
        write(
            &self.ca,
            &authority.self_signed(&authority_key).map_err(wrong)?.pem(),
            false,
        )?;
        let issuer = Issuer::new(authority, authority_key);
        for (certificate, key, name) in [
            (&self.certificate, &self.key, "localhost"),
            (&self.client_certificate, &self.client_key, "client"),
        ] {
            let mut params = CertificateParams::new(vec![name.to_owned(), "127.0.0.1".to_owned()])
                .map_err(wrong)?;
            params.distinguished_name.push(DnType::CommonName, name);
            let pair = KeyPair::generate().map_err(wrong)?;
            write(
                certificate,
                &params.signed_by(&pair, &issuer).map_err(wrong)?.pem(),
                false,
            )?;
            write(key, &pair.serialize_pem(), true)?;
        }
        if let Some(user) = user {
            chown(&self.key, Some(user), Some(user))
                .map_err(LaunchError::io("cannot hand over", &self.key))?;
        }
        Ok(())
    }

    /// Returns an error that names the missing feature.
    #[cfg(not(feature = "tls"))]
    pub(super) fn create(&self, _user: Option<u32>) -> Result<(), LaunchError> {
        Err(LaunchError::Install(
            "a server with TLS needs the feature `tls` of membership-testbed".to_owned(),
        ))
    }
}
