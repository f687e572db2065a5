//! `azure-table://account/table?…` as a configuration.

use membership_core::{ConnectionOption, ConnectionString, TableError};

use crate::auth::Identity;
use crate::config::{AzureTableConfig, DEFAULT_TABLE};
use crate::error::wrong;
use crate::{STORE, settings};

const CONNECTION_STRING: &str = "AZURE_STORAGE_CONNECTION_STRING";
const ACCOUNT: &str = "AZURE_STORAGE_ACCOUNT";
const KEY: &str = "AZURE_STORAGE_KEY";
const SAS: &str = "AZURE_STORAGE_SAS_TOKEN";

const OPTIONS: &str = "account_key, sas, connection_string, credential, client_id, endpoint, endpoint_suffix, development, tls_ca, \
                       operation_timeout and connect_timeout";

/// See [`AzureTableConfig::from_url`].
pub(crate) fn parse(
    url: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<AzureTableConfig, TableError> {
    let url = ConnectionString::parse(STORE, &["azure-table"], url)?;
    let account = match url.hosts.as_slice() {
        [] => None,
        [(account, None)] => Some(account.clone()),
        _ => {
            return Err(wrong(
                "the URL names one account, without a port: azure-table://account/table; an address is the option `endpoint`",
            ));
        }
    };
    let table = url
        .path
        .as_deref()
        .unwrap_or_default()
        .trim_end_matches('/');
    let table = if table.is_empty() {
        DEFAULT_TABLE
    } else {
        table
    }
    .to_owned();
    if url.user.is_some() {
        return Err(wrong(
            "the URL names a user: an account key is written azure-table://:KEY@account/table, or as the option `account_key`",
        ));
    }

    let value = |name: &str| url.options.iter().find(|option| option.name() == name);
    let development = value("development")
        .map(ConnectionOption::flag)
        .transpose()?
        .unwrap_or(false);
    let credentials = ["account_key", "sas", "connection_string", "credential"];
    let given: Vec<&str> = credentials
        .into_iter()
        .filter(|name| value(name).is_some())
        .collect();
    if given.len() + usize::from(url.password.is_some()) + usize::from(development) > 1 {
        return Err(wrong(
            "the URL says in more than one way who asks: leave one of account_key, sas, connection_string, credential and development",
        ));
    }
    let by_url = !given.is_empty() || url.password.is_some();
    let named = value("connection_string").map(ConnectionOption::text);
    let of_environment = || {
        if by_url || value("endpoint").is_some() {
            None
        } else {
            environment(CONNECTION_STRING)
        }
    };
    let mut config = if development {
        settings::emulator(table)
    } else if let Some(text) = named.or_else(of_environment) {
        AzureTableConfig::from_connection_string(&text, table)?
    } else {
        let of_endpoint = || settings::account_of(&value("endpoint")?.text());
        let account = account.clone().or_else(of_endpoint).or_else(|| environment(ACCOUNT)).ok_or_else(|| {
            wrong(format!("the URL names no account: write azure-table://account/table, or set {CONNECTION_STRING} or {ACCOUNT}"))
        })?;
        let config = AzureTableConfig::new(account, table);
        match (&url.password, environment(KEY), environment(SAS)) {
            (Some(key), ..) => config.account_key(key.clone()),
            _ if by_url => config,
            (None, Some(key), _) => config.account_key(key),
            (None, None, Some(sas)) => config.shared_access_signature(sas),
            (None, None, None) => config,
        }
    };
    if let Some(account) = account.filter(|account| *account != config.account) {
        let from = if development {
            "the emulator has"
        } else {
            "the connection string is for"
        };
        return Err(wrong(format!(
            "the URL names the account `{account}`, and {from} `{}`: leave it out of the URL, or correct one",
            config.account
        )));
    }
    for option in &url.options {
        config = set(config, option)?;
    }
    config.validate()?;
    Ok(config)
}

fn set(
    config: AzureTableConfig,
    option: &ConnectionOption,
) -> Result<AzureTableConfig, TableError> {
    Ok(match option.name() {
        "account_key" => config.account_key(option.text()),
        "sas" => config.shared_access_signature(option.text()),
        "connection_string" | "development" => config,
        "credential" => config.identity(option.one_of(&[
            ("default", Identity::Default),
            ("environment", Identity::Environment),
            ("workload", Identity::Workload),
            ("managed", Identity::Managed),
            ("developer", Identity::Developer),
        ])?),
        "client_id" => config.client_id(option.text()),
        "endpoint" => config.endpoint(option.text().trim_end_matches('/')),
        "endpoint_suffix" => config.endpoint_suffix(option.text()),
        "tls_ca" => config.tls_ca_file(option.text()),
        "operation_timeout" => config.operation_timeout(option.duration()?),
        "connect_timeout" => config.connect_timeout(option.duration()?),
        _ => return Err(option.unknown(OPTIONS)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_core::TableErrorKind;

    fn read(url: &str) -> Result<AzureTableConfig, TableError> {
        parse(url, |_| None)
    }

    fn shown(config: &AzureTableConfig) -> String {
        format!(
            "{} {} {} {:?}",
            config.account,
            config.table,
            config.endpoint_url().unwrap(),
            config.credential
        )
    }

    const PORTAL: &str = "DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey=a2V5a2V5;EndpointSuffix=core.windows.net";

    #[test]
    fn urls_name_a_table() {
        for (url, expected) in [
            (
                "azure-table://contoso",
                "contoso membership https://contoso.table.core.windows.net/ None",
            ),
            (
                "azure-table://contoso/silos?account_key=a2V5",
                "contoso silos https://contoso.table.core.windows.net/ Some(account key)",
            ),
            (
                "azure-table://:a2V5%2Bw==@contoso/silos",
                "contoso silos https://contoso.table.core.windows.net/ Some(account key)",
            ),
            (
                "azure-table://contoso/silos?endpoint_suffix=core.chinacloudapi.cn&sas=sv%3D1%26sig%3Dx",
                "contoso silos https://contoso.table.core.chinacloudapi.cn/ Some(shared access signature)",
            ),
            (
                "azure-table:///silos?credential=managed&endpoint=https://x.example/",
                "x silos https://x.example/ Some(Managed)",
            ),
            (
                "azure-table:///silos?development",
                "devstoreaccount1 silos http://127.0.0.1:10002/devstoreaccount1 Some(account key)",
            ),
        ] {
            assert_eq!(shown(&read(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn connection_strings_of_the_portal_are_taken() {
        for (text, expected) in [
            (
                PORTAL,
                "contoso t00 https://contoso.table.core.windows.net/ Some(account key)",
            ),
            (
                "AccountName=a1;AccountKey=a2V5;DefaultEndpointsProtocol=http;",
                "a1 t00 http://a1.table.core.windows.net/ Some(account key)",
            ),
            (
                "TableEndpoint=https://a1.table.core.windows.net/;SharedAccessSignature=sv=2022&sig=x%2B",
                "a1 t00 https://a1.table.core.windows.net/ Some(shared access signature)",
            ),
            (
                "AccountName=dev;AccountKey=a2V5;TableEndpoint=http://127.0.0.1:7/dev;BlobEndpoint=http://127.0.0.1:8/dev",
                "dev t00 http://127.0.0.1:7/dev Some(account key)",
            ),
            (
                "UseDevelopmentStorage=true",
                "devstoreaccount1 t00 http://127.0.0.1:10002/devstoreaccount1 Some(account key)",
            ),
        ] {
            let config = AzureTableConfig::from_connection_string(text, "t00").unwrap();
            config.validate().unwrap();
            assert_eq!(shown(&config), expected);
            assert!(!format!("{config:?}").contains("a2V5"));
        }
    }

    #[test]
    fn what_the_url_leaves_out_comes_from_the_environment() {
        let with = |name: &'static str, value: &'static str| {
            move |asked: &str| (asked == name).then(|| value.to_owned())
        };
        let found =
            |url: &str, name, value| parse(url, with(name, value)).map(|config| shown(&config));
        for url in ["azure-table:///silos", "azure-table://contoso/silos"] {
            assert_eq!(
                found(url, CONNECTION_STRING, PORTAL).unwrap(),
                "contoso silos https://contoso.table.core.windows.net/ Some(account key)"
            );
        }
        assert!(
            found("azure-table://other/silos", CONNECTION_STRING, PORTAL)
                .unwrap_err()
                .to_string()
                .contains("`contoso`")
        );
        assert!(
            found(
                "azure-table://other/silos?credential=default",
                CONNECTION_STRING,
                PORTAL
            )
            .is_ok()
        );
        assert!(
            found("azure-table:///silos", ACCOUNT, "contoso")
                .unwrap()
                .ends_with("None")
        );
        assert!(
            found("azure-table://contoso/silos", KEY, "a2V5")
                .unwrap()
                .ends_with("Some(account key)")
        );
        assert!(
            found("azure-table://contoso/silos", SAS, "?sig=x")
                .unwrap()
                .ends_with("Some(shared access signature)")
        );
        assert!(
            found(
                "azure-table://contoso/silos?credential=workload",
                KEY,
                "a2V5"
            )
            .unwrap()
            .ends_with("Some(Workload)")
        );
    }

    #[test]
    fn nonsense_is_refused_with_advice_and_shows_no_secret() {
        for (url, why) in [
            ("azure-table:contoso", "`azure-table://`"),
            ("azure-table:///silos", "names no account"),
            ("azure-table://contoso:443/silos", "without a port"),
            ("azure-table://bo:hunter2@contoso/silos", "names a user"),
            ("azure-table://contoso/a", "3 to 63"),
            ("azure-table://contoso/a-b-c", "3 to 63"),
            (
                "azure-table://contoso/silos?colour=hunter2",
                "`colour` is no option",
            ),
            ("azure-table://contoso/silos?account_key=hunter2!", "base64"),
            ("azure-table://contoso/silos?sas=hunter2", "`sig`"),
            (
                "azure-table://contoso/silos?account_key=aHVudGVyMg==&sas=sig%3Dhunter2",
                "more than one way",
            ),
            ("azure-table://contoso/silos?endpoint=hunter2", "no address"),
            (
                "azure-table://contoso/silos?endpoint=https://h/?sig=hunter2",
                "an address alone",
            ),
            ("azure-table://contoso/silos?credential=great", "developer"),
            ("azure-table://contoso/silos?operation_timeout=0s", "10 ms"),
            (
                "azure-table:///silos?connection_string=AccountKey%3Dhunter2",
                "names no account",
            ),
            (
                "azure-table:///silos?connection_string=AccountName%3Da1%3BColour%3Dhunter2",
                "`Colour`",
            ),
            (
                "azure-table:///silos?connection_string=hunter2",
                "Name=value",
            ),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), TableErrorKind::Configuration, "{url}");
            assert!(
                error.to_string().contains(why) && !format!("{error:?}").contains("hunter2"),
                "{url}: {error:?}"
            );
        }
    }
}
