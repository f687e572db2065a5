//! Connection strings as the portal shows them: `Name=value;Name=value;…`.
//!
//! Errors never repeat a value: it may be a key (clause T15).

use membership_core::TableError;

use crate::config::AzureTableConfig;
use crate::error::wrong;

/// The account, key and address that every emulator has; in its public documentation.
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR: &str = "http://127.0.0.1:10002";

/// The emulator on this machine.
pub(crate) fn emulator(table: String) -> AzureTableConfig {
    AzureTableConfig::new(EMULATOR_ACCOUNT, table)
        .endpoint(format!("{EMULATOR}/{EMULATOR_ACCOUNT}"))
        .account_key(EMULATOR_KEY)
}

/// See [`AzureTableConfig::from_connection_string`].
pub(crate) fn parse(text: &str, table: String) -> Result<AzureTableConfig, TableError> {
    let (mut protocol, mut account, mut key, mut suffix, mut endpoint, mut sas) =
        (None, None, None, None, None, None);
    let mut development = false;
    for pair in text
        .split(';')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
    {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| wrong("a part of the connection string is not `Name=value`"))?;
        let value = value.trim().to_owned();
        let place = match name.trim().to_ascii_lowercase().as_str() {
            "defaultendpointsprotocol" => &mut protocol,
            "accountname" => &mut account,
            "accountkey" => &mut key,
            "endpointsuffix" => &mut suffix,
            "tableendpoint" => &mut endpoint,
            "sharedaccesssignature" => &mut sas,
            "usedevelopmentstorage" if value.eq_ignore_ascii_case("true") => {
                development = true;
                continue;
            }
            // Where the other services are.
            "blobendpoint"
            | "queueendpoint"
            | "fileendpoint"
            | "dfsendpoint"
            | "webendpoint"
            | "tablesecondaryendpoint"
            | "blobsecondaryendpoint"
            | "queuesecondaryendpoint"
            | "filesecondaryendpoint"
            | "usedevelopmentstorage" => continue,
            _ => {
                let name: String = name
                    .chars()
                    .filter(|c| c.is_ascii_alphanumeric())
                    .take(40)
                    .collect();
                return Err(wrong(format!(
                    "the connection string has a part `{name}`, which is not one of a storage account's"
                )));
            }
        };
        if place.replace(value).is_some() {
            return Err(wrong("the connection string says something twice"));
        }
    }
    if development {
        return Ok(emulator(table));
    }
    let account = match (account, &endpoint) {
        (Some(account), _) => account,
        (None, Some(endpoint)) => account_of(endpoint)
            .ok_or_else(|| wrong("the connection string names no account: add `AccountName=`"))?,
        (None, None) => {
            return Err(wrong(
                "the connection string names no account: copy it whole from the portal, under `Access keys`",
            ));
        }
    };
    let mut config = AzureTableConfig::new(account, table);
    if let Some(suffix) = suffix {
        config = config.endpoint_suffix(suffix);
    }
    config = match (endpoint, protocol.as_deref()) {
        (Some(endpoint), _) => config.endpoint(endpoint.trim_end_matches('/')),
        (None, Some("http")) => {
            let plain = format!("http://{}.table.{}", config.account, config.endpoint_suffix);
            config.endpoint(plain)
        }
        (None, None | Some("https")) => config,
        (None, Some(_)) => return Err(wrong("DefaultEndpointsProtocol is https or http")),
    };
    Ok(match (key, sas) {
        (Some(key), None) => config.account_key(key),
        (None, Some(sas)) => config.shared_access_signature(sas),
        (None, None) => config,
        (Some(_), Some(_)) => {
            return Err(wrong(
                "the connection string has both an AccountKey and a SharedAccessSignature: leave one",
            ));
        }
    })
}

/// The account that an address belongs to: the first part of the host's name, or of the path where the host is a number.
pub(crate) fn account_of(endpoint: &str) -> Option<String> {
    let rest = endpoint.split_once("://")?.1;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let numbered = host.starts_with('[')
        || host
            .split(':')
            .next()?
            .bytes()
            .all(|b| b.is_ascii_digit() || b == b'.');
    let first = if numbered || host.starts_with("localhost") {
        path.split('/').next()?
    } else {
        host.split('.').next()?
    };
    (!first.is_empty()).then(|| first.to_owned())
}
