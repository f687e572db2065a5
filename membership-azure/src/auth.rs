//! Credentials: the key of an account, a shared access signature, or a token of Entra ID.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::error::ErrorKind;
use azure_core::hmac::hmac_sha256;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{ClientOptions, Context, Method, Request, Transport};
use azure_core::time::{OffsetDateTime, to_rfc7231};
use azure_identity::{
    ClientSecretCredential, ClientSecretCredentialOptions, DeveloperToolsCredential,
    ManagedIdentityCredential, ManagedIdentityCredentialOptions, UserAssignedId,
    WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use membership_core::TableError;
use membership_provider::environment;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::error::wrong;

/// The scope of the requested tokens.
const SCOPE: &str = "https://storage.azure.com/.default";
/// A token that ends within this time is replaced, if there is a new one.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// How long a credential may take, whoever waits for it. A managed identity tries for 72 s.
const LONGEST: Duration = Duration::from_secs(90);
/// The metadata service of a virtual machine, and how long it has to answer: it is on the machine.
const METADATA: &str = "http://169.254.169.254/metadata/identity/oauth2/token";
const PROBE: Duration = Duration::from_secs(1);

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

    /// The policy that signs each request with the key of the account, if that authorizes them.
    pub(crate) fn policies(&self, account: &str) -> Vec<Arc<dyn Policy>> {
        let Self::Key(key) = self else {
            return Vec::new();
        };
        let (account, key) = (account.to_owned(), key.clone());
        vec![Arc::new(SharedKeyLite { account, key })]
    }

    /// The tokens that authorize requests, if tokens do.
    pub(crate) fn tokens(
        &self,
        client_id: Option<&str>,
        options: &ClientOptions,
    ) -> Result<Option<Tokens>, TableError> {
        let credential = match self {
            Self::Sas(_) | Self::Key(_) => return Ok(None),
            Self::Token(token) => Arc::clone(token),
            Self::Identity(identity) => find(*identity, client_id, options)?,
        };
        let kept = Arc::default();
        Ok(Some(Tokens { credential, kept }))
    }
}

/// The tokens of a credential, of which the last one is kept.
pub(crate) struct Tokens {
    credential: Arc<dyn TokenCredential>,
    kept: Arc<Mutex<Option<AccessToken>>>,
}

impl Tokens {
    /// The token for a request that is sent now. Asking for one goes on when the caller gives up,
    /// so that the next caller does not start over.
    pub(crate) async fn current(&self) -> azure_core::Result<Secret> {
        let mut kept = Arc::clone(&self.kept).lock_owned().await;
        let lives = |token: &AccessToken, rest| token.expires_on > OffsetDateTime::now_utc() + rest;
        if let Some(token) = kept.as_ref().filter(|token| lives(token, RENEWED_BEFORE)) {
            return Ok(token.token.clone());
        }
        let credential = Arc::clone(&self.credential);
        let asked = tokio::spawn(async move {
            let got = timeout(LONGEST, credential.get_token(&[SCOPE], None)).await;
            let got = got.unwrap_or_else(|_| Err(away(format!("no answer within {LONGEST:?}"))));
            match (got, &*kept) {
                (Err(_), Some(token)) if lives(token, Duration::ZERO) => Ok(token.token.clone()),
                (got, _) => Ok(kept.insert(got?).token.clone()),
            }
        });
        asked.await.unwrap_or_else(|why| Err(away(why.to_string())))
    }

    /// The service has refused the token.
    pub(crate) fn forget(&self) {
        // Whoever holds the lock asks for a new one.
        if let Ok(mut kept) = self.kept.try_lock() {
            *kept = None;
        }
    }
}

/// What gives tokens is away, which is no refusal.
fn away(why: String) -> azure_core::Error {
    azure_core::Error::with_message(ErrorKind::Connection, why)
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
    type Found = Arc<dyn TokenCredential>;
    let no = |what: &'static str| {
        move |why: azure_core::Error| wrong(format!("{what} cannot be used: {why}"))
    };
    let principal = || -> Result<Found, TableError> {
        let names = ["AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"];
        let [Some(tenant), Some(client), Some(secret)] = names.map(environment) else {
            return Err(wrong(
                "there is no service principal: set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
            ));
        };
        let client_options = options.clone();
        let options = Some(ClientSecretCredentialOptions { client_options });
        let found = ClientSecretCredential::new(&tenant, client, Secret::new(secret), options);
        Ok(found.map_err(no("the service principal of the environment"))?)
    };
    let workload = || -> Result<Found, TableError> {
        let options = WorkloadIdentityCredentialOptions {
            client_id: client_id.map(str::to_owned),
            ..Default::default()
        };
        let found = WorkloadIdentityCredential::new(Some(options));
        Ok(found.map_err(no("the workload identity"))?)
    };
    let managed = || -> Result<Found, TableError> {
        let mut own = ManagedIdentityCredentialOptions {
            client_options: options.clone(),
            ..Default::default()
        };
        own.user_assigned_id = client_id.map(|id| UserAssignedId::ClientId(id.to_owned()));
        let found = ManagedIdentityCredential::new(Some(own));
        Ok(found.map_err(no("the managed identity"))?)
    };
    let developer = || -> Result<Found, TableError> {
        let found = DeveloperToolsCredential::new(None);
        Ok(found.map_err(no("the developer tools' login"))?)
    };
    match identity {
        Identity::Environment => principal(),
        Identity::Workload => workload(),
        Identity::Managed => managed(),
        Identity::Developer => developer(),
        // Only a request for a token shows which of them exists.
        Identity::Default => {
            let managed = managed().map(|credential| -> Found {
                let (transport, credential) = (options.transport.clone(), credential);
                Arc::new(IfThere(transport.unwrap_or_default(), credential))
            });
            let all = [principal(), workload(), managed, developer()];
            Ok(Arc::new(Chain(
                all.into_iter().flatten().collect(),
                OnceLock::new(),
            )))
        }
    }
}

/// A managed identity that is asked only where a metadata service answers in time: elsewhere each
/// attempt would wait for as long as a connection may take, and there are several.
#[derive(Debug)]
struct IfThere(Transport, Arc<dyn TokenCredential>);

#[async_trait]
impl TokenCredential for IfThere {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        // App services and functions name a service of their own.
        if environment("IDENTITY_ENDPOINT").is_none() && environment("MSI_ENDPOINT").is_none() {
            let mut probe = Request::new(METADATA.parse()?, Method::Get);
            let context = Context::new();
            let probed = timeout(PROBE, self.0.send(&context, &mut probe)).await;
            // Any other answer comes from a proxy.
            if !matches!(probed, Ok(Ok(answer)) if u16::from(answer.status()) < 500) {
                return Err(away(format!(
                    "no metadata service answers within {PROBE:?}"
                )));
            }
        }
        self.1.get_token(scopes, options).await
    }
}

/// The first credential that gives a token; later tokens come from the same one.
#[derive(Debug)]
struct Chain(
    Vec<Arc<dyn TokenCredential>>,
    OnceLock<Arc<dyn TokenCredential>>,
);

#[async_trait]
impl TokenCredential for Chain {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        if let Some(credential) = self.1.get() {
            return credential.get_token(scopes, options).await;
        }
        let mut why = Vec::new();
        for credential in &self.0 {
            match credential.get_token(scopes, options.clone()).await {
                Ok(token) => {
                    self.1.get_or_init(|| Arc::clone(credential));
                    return Ok(token);
                }
                Err(no) => why.push(no.to_string().lines().next().unwrap_or_default().to_owned()),
            }
        }
        Err(azure_core::Error::with_message(
            ErrorKind::Credential,
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
