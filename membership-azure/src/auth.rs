//! Credentials: the key of an account, a shared access signature, or a token of Entra ID.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::hmac::hmac_sha256;
use azure_core::http::policies::auth::BearerTokenAuthorizationPolicy;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{ClientOptions, Context, Request};
use azure_core::time::{OffsetDateTime, to_rfc7231};
use azure_identity::{
    ClientSecretCredential, ClientSecretCredentialOptions, DeveloperToolsCredential,
    ManagedIdentityCredential, ManagedIdentityCredentialOptions, UserAssignedId,
    WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use membership_core::TableError;
use membership_provider::environment;

use crate::error::wrong;

/// The scope of the requested tokens.
const SCOPE: &str = "https://storage.azure.com/.default";

/// How requests are authorized. `Debug` shows no secret (clause T15).
#[derive(Clone)]
pub(crate) enum Credential {
    /// The key of the account, in base64.
    Key(Secret),
    /// A shared access signature, without its `?`.
    Sas(Secret),
    /// A credential of the caller's own.
    Token(Arc<dyn TokenCredential>),
    /// A credential that this process finds.
    Identity(Identity),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(_) => f.write_str("account key"),
            Self::Sas(_) => f.write_str("shared access signature"),
            Self::Token(_) => f.write_str("token credential"),
            Self::Identity(identity) => write!(f, "{identity:?}"),
        }
    }
}

/// Where a token of Entra ID comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identity {
    /// The first of the others that exists: a service principal of the environment, a workload
    /// identity, a managed identity, developer tools.
    #[default]
    Default,
    /// A service principal: `AZURE_TENANT_ID`, `AZURE_CLIENT_ID` and `AZURE_CLIENT_SECRET`.
    Environment,
    /// The workload identity of a pod in Kubernetes.
    Workload,
    /// The managed identity of a virtual machine, an app service or a function.
    Managed,
    /// What the Azure CLI or the Azure Developer CLI is logged in with.
    Developer,
}

impl Credential {
    /// Refuses credentials that cannot work.
    pub(crate) fn validate(&self) -> Result<(), TableError> {
        match self {
            Self::Key(key) if hmac_sha256("", key).is_err() || key.secret().is_empty() => {
                Err(wrong(
                    "the account key is not base64: copy it as the portal shows it; in a URL write `%2B` for `+` if something turns that into a blank",
                ))
            }
            Self::Sas(sas) if !sas.secret().contains("sig=") => Err(wrong(
                "the shared access signature has no `sig`: copy it whole, and in a URL write `%26` for `&` and `%25` for `%`",
            )),
            _ => Ok(()),
        }
    }

    /// The policies that sign each request. A shared access signature is part of the URL instead.
    pub(crate) fn policies(
        &self,
        account: &str,
        client_id: Option<&str>,
        options: &ClientOptions,
    ) -> Result<Vec<Arc<dyn Policy>>, TableError> {
        let token: Arc<dyn TokenCredential> = match self {
            Self::Sas(_) => return Ok(Vec::new()),
            Self::Key(key) => {
                return Ok(vec![Arc::new(SharedKeyLite {
                    account: account.to_owned(),
                    key: key.clone(),
                })]);
            }
            Self::Token(token) => Arc::clone(token),
            Self::Identity(identity) => find(*identity, client_id, options)?,
        };
        Ok(vec![Arc::new(BearerTokenAuthorizationPolicy::new(
            token,
            [SCOPE],
        ))])
    }
}

/// Signs a request with the key of the account: the time, and the path as it is sent, after the
/// account's name.
struct SharedKeyLite {
    account: String,
    key: Secret,
}

impl fmt::Debug for SharedKeyLite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKeyLite")
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

impl SharedKeyLite {
    fn authorization(&self, date: &str, path: &str) -> azure_core::Result<String> {
        let signature = hmac_sha256(&format!("{date}\n/{}{path}", self.account), &self.key)?;
        Ok(format!("SharedKeyLite {}:{signature}", self.account))
    }
}

#[async_trait]
#[allow(
    elided_lifetimes_in_paths,
    reason = "the trait's macro takes the lifetime only as it is written there"
)]
impl Policy for SharedKeyLite {
    async fn send(
        &self,
        ctx: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        let date = to_rfc7231(&OffsetDateTime::now_utc());
        let authorization = self.authorization(&date, request.url().path())?;
        request.insert_header("x-ms-date", date);
        request.insert_header("authorization", authorization);
        match next.split_first() {
            Some((first, rest)) => first.send(ctx, request, rest).await,
            None => Err(azure_core::Error::with_message(
                azure_core::error::ErrorKind::Other,
                "there is no transport",
            )),
        }
    }
}

fn find(
    identity: Identity,
    client_id: Option<&str>,
    options: &ClientOptions,
) -> Result<Arc<dyn TokenCredential>, TableError> {
    let no = |what: &'static str| {
        move |why: azure_core::Error| wrong(format!("{what} cannot be used: {why}"))
    };
    let principal = || match (
        environment("AZURE_TENANT_ID"),
        environment("AZURE_CLIENT_ID"),
        environment("AZURE_CLIENT_SECRET"),
    ) {
        (Some(tenant), Some(client), Some(secret)) => {
            let options = ClientSecretCredentialOptions {
                client_options: options.clone(),
            };
            let found =
                ClientSecretCredential::new(&tenant, client, Secret::new(secret), Some(options));
            found
                .map(|credential| credential as Arc<dyn TokenCredential>)
                .map_err(no("the service principal of the environment"))
        }
        _ => Err(wrong(
            "there is no service principal: set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
        )),
    };
    let workload = || {
        let options = WorkloadIdentityCredentialOptions {
            client_id: client_id.map(str::to_owned),
            ..Default::default()
        };
        let found = WorkloadIdentityCredential::new(Some(options));
        found
            .map(|credential| credential as Arc<dyn TokenCredential>)
            .map_err(no("the workload identity"))
    };
    let managed = || {
        let mut own = ManagedIdentityCredentialOptions {
            client_options: options.clone(),
            ..Default::default()
        };
        own.user_assigned_id = client_id.map(|id| UserAssignedId::ClientId(id.to_owned()));
        let found = ManagedIdentityCredential::new(Some(own));
        found
            .map(|credential| credential as Arc<dyn TokenCredential>)
            .map_err(no("the managed identity"))
    };
    let developer = || {
        let found = DeveloperToolsCredential::new(None);
        found
            .map(|credential| credential as Arc<dyn TokenCredential>)
            .map_err(no("the developer tools' login"))
    };
    match identity {
        Identity::Environment => principal(),
        Identity::Workload => workload(),
        Identity::Managed => managed(),
        Identity::Developer => developer(),
        // Only a request for a token shows which of them exists.
        Identity::Default => Ok(Arc::new(Chain(
            [principal(), workload(), managed(), developer()]
                .into_iter()
                .flatten()
                .collect(),
        ))),
    }
}

/// The first credential that gives a token.
#[derive(Debug)]
struct Chain(Vec<Arc<dyn TokenCredential>>);

#[async_trait]
impl TokenCredential for Chain {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let mut why = Vec::new();
        for credential in &self.0 {
            match credential.get_token(scopes, options.clone()).await {
                Ok(token) => return Ok(token),
                Err(no) => why.push(no.to_string().lines().next().unwrap_or_default().to_owned()),
            }
        }
        Err(azure_core::Error::with_message(
            azure_core::error::ErrorKind::Credential,
            format!("none was found: {}", why.join("; ")),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signature that Azurite accepted, with the key from its documentation.
    #[test]
    fn requests_are_signed_as_the_service_expects() {
        let key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
        let policy = SharedKeyLite {
            account: "devstoreaccount1".to_owned(),
            key: Secret::new(key),
        };
        let signed = policy
            .authorization("Sat, 21 Nov 2026 09:09:05 GMT", "/devstoreaccount1/rec()")
            .unwrap();
        assert_eq!(
            signed,
            "SharedKeyLite devstoreaccount1:bF2DgBwByRV4flZRHLu9H02+aoTS2WaK7YH3kAoAMyc="
        );
        assert!(!format!("{policy:?} {:?}", Credential::Key(policy.key.clone())).contains("Eby8"));
    }

    #[test]
    fn invalid_credentials_are_refused() {
        for (credential, why) in [
            (Credential::Key(Secret::new("not base64!")), "base64"),
            (Credential::Key(Secret::new("")), "base64"),
            (Credential::Sas(Secret::new("sv=2019&ss=t")), "`sig`"),
        ] {
            assert!(credential.validate().unwrap_err().to_string().contains(why));
        }
        assert!(
            Credential::Sas(Secret::new("sv=2019&sig=abc"))
                .validate()
                .is_ok()
        );
    }
}
