//! Methods that configurations of several stores have in common. Each macro stands in the `impl` of
//! a configuration.

/// The methods `operation_timeout` and `connect_timeout` of a configuration whose field `timeouts`
/// is a [`Timeouts`](crate::Timeouts).
#[macro_export]
macro_rules! timeout_methods {
    () => {
        /// How long one operation may take, with all its requests and connecting: 10 ms to 1 h.
        /// Default: 5 s.
        #[must_use]
        pub fn operation_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.timeouts.set_operation(timeout);
            self
        }

        /// How long it may take to make one connection: 10 ms to 1 h. Default: 2 s. A client that
        /// the application made keeps its own.
        #[must_use]
        pub fn connect_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.timeouts.set_connect(timeout);
            self
        }
    };
}

/// The methods `tls_ca_file`, `tls_certificate_file` and `tls_key_file` of a configuration whose
/// field `tls_files` is a [`TlsFiles`](crate::TlsFiles).
#[macro_export]
macro_rules! tls_file_methods {
    () => {
        /// A PEM file with the certificates to trust instead of the system's.
        #[must_use]
        pub fn tls_ca_file(mut self, path: impl Into<::std::path::PathBuf>) -> Self {
            self.tls_files.ca = Some(path.into());
            self
        }

        /// A PEM file with this client's certificate; needs [`tls_key_file`](Self::tls_key_file)
        /// too.
        #[must_use]
        pub fn tls_certificate_file(mut self, path: impl Into<::std::path::PathBuf>) -> Self {
            self.tls_files.certificate = Some(path.into());
            self
        }

        /// A PEM file with the private key of that certificate.
        #[must_use]
        pub fn tls_key_file(mut self, path: impl Into<::std::path::PathBuf>) -> Self {
            self.tls_files.key = Some(path.into());
            self
        }
    };
}
