//! Connection strings as the portal shows them: `Name=value;Name=value;…`.
//!
//! Errors never repeat a value: it may be a key (clause T15).

use membership_core::TableError;

use crate::error::wrong;

/// The account, key and URL that every emulator has; from its public documentation.
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR: &str = "http://127.0.0.1:10002";

/// What a connection string names.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) account: String,
    pub(super) key: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) suffix: Option<String>,
    pub(super) endpoint: Option<String>,
    /// Whether to use plain HTTP where no endpoint is named.
    pub(super) plain_http: bool,
}

impl Parts {
    /// The emulator on this machine.
    pub(super) fn emulator() -> Self {
        Self {
            account: EMULATOR_ACCOUNT.to_owned(),
            key: Some(EMULATOR_KEY.to_owned()),
            endpoint: Some(format!("{EMULATOR}/{EMULATOR_ACCOUNT}")),
            ..Self::default()
        }
    }

    /// # Errors
    /// `Configuration`, with what to write instead.
    pub(super) fn parse(text: &str) -> Result<Self, TableError> {
        let (mut parts, mut account, mut protocol) = (Self::default(), None, None);
        let mut development = false;
        let pairs = text.split(';').map(str::trim);
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| wrong("a part of the connection string is not `Name=value`"))?;
            let value = value.trim().to_owned();
            let part = match name.trim().to_ascii_lowercase().as_str() {
                "defaultendpointsprotocol" => &mut protocol,
                "accountname" => &mut account,
                "accountkey" => &mut parts.key,
                "endpointsuffix" => &mut parts.suffix,
                "tableendpoint" => &mut parts.endpoint,
                "sharedaccesssignature" => &mut parts.signature,
                "usedevelopmentstorage" => {
                    development |= value.eq_ignore_ascii_case("true");
                    continue;
                }
                // The URLs of the other services.
                "blobendpoint"
                | "queueendpoint"
                | "fileendpoint"
                | "dfsendpoint"
                | "webendpoint"
                | "tablesecondaryendpoint"
                | "blobsecondaryendpoint"
                | "queuesecondaryendpoint"
                | "filesecondaryendpoint" => continue,
                _ => {
                    let plain = name.chars().filter(char::is_ascii_alphanumeric);
                    let name: String = plain.take(40).collect();
                    return Err(wrong(format!(
                        "the connection string has a part `{name}`, which no storage account has"
                    )));
                }
            };
            if part.replace(value).is_some() {
                return Err(wrong("the connection string has the same part twice"));
            }
        }
        if development {
            return Ok(Self::emulator());
        }
        parts.account = match (account, &parts.endpoint) {
            (Some(account), _) => account,
            (None, Some(endpoint)) => account_of(endpoint).ok_or_else(|| {
                wrong("the connection string names no account: add `AccountName=`")
            })?,
            (None, None) => {
                return Err(wrong(
                    "the connection string names no account: copy it whole from the portal, under `Access keys`",
                ));
            }
        };
        parts.plain_http = match protocol.as_deref() {
            _ if parts.endpoint.is_some() => false,
            None | Some("https") => false,
            Some("http") => true,
            Some(_) => return Err(wrong("DefaultEndpointsProtocol must be https or http")),
        };
        if parts.key.is_some() && parts.signature.is_some() {
            return Err(wrong(
                "the connection string has both an AccountKey and a SharedAccessSignature: remove one",
            ));
        }
        Ok(parts)
    }
}

/// The account of a URL: the first part of the host's name, or of the path if the host is an IP
/// address.
pub(super) fn account_of(endpoint: &str) -> Option<String> {
    let rest = endpoint.split_once("://")?.1;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_number = |host: &str| host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let numbered = host.starts_with('[') || is_number(host.split(':').next()?);
    let first = if numbered || host.starts_with("localhost") {
        path.split('/').next()?
    } else {
        host.split('.').next()?
    };
    (!first.is_empty()).then(|| first.to_owned())
}
