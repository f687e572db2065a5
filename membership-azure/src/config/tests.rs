//! URLs, connection strings and the environment as configurations.

use super::*;
use conformance_tests::helpers::urls_are_refused;

fn read(url: &str) -> Result<AzureTableConfig, TableError> {
    parse_url(url, |_| None)
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
    for case in [
        "azure-table://contoso => contoso membership https://contoso.table.core.windows.net/ None",
        "azure-table://contoso/silos?account_key=a2V5 => contoso silos https://contoso.table.core.windows.net/ Some(account key)",
        "azure-table://:a2V5%2Bw==@contoso/silos => contoso silos https://contoso.table.core.windows.net/ Some(account key)",
        "azure-table://contoso/silos?endpoint_suffix=core.chinacloudapi.cn&sas=sv%3D1%26sig%3Dx => contoso silos https://contoso.table.core.chinacloudapi.cn/ Some(shared access signature)",
        "azure-table:///silos?credential=managed&endpoint=https://x.example/ => x silos https://x.example/ Some(Managed)",
        "azure-table:///silos?development => devstoreaccount1 silos http://127.0.0.1:10002/devstoreaccount1 Some(account key)",
    ] {
        let (url, expected) = case.split_once(" => ").unwrap();
        assert_eq!(shown(&read(url).unwrap()), expected, "{url}");
    }
}

#[test]
fn connection_strings_of_the_portal_are_accepted() {
    let portal = format!(
        "{PORTAL} => contoso t00 https://contoso.table.core.windows.net/ Some(account key)"
    );
    for case in [
        portal.as_str(),
        "AccountName=a1;AccountKey=a2V5;DefaultEndpointsProtocol=http; => a1 t00 http://a1.table.core.windows.net/ Some(account key)",
        "TableEndpoint=https://a1.table.core.windows.net/;SharedAccessSignature=sv=2022&sig=x%2B => a1 t00 https://a1.table.core.windows.net/ Some(shared access signature)",
        "AccountName=dev;AccountKey=a2V5;TableEndpoint=http://127.0.0.1:7/dev;BlobEndpoint=http://127.0.0.1:8/dev => dev t00 http://127.0.0.1:7/dev Some(account key)",
        "UseDevelopmentStorage=true => devstoreaccount1 t00 http://127.0.0.1:10002/devstoreaccount1 Some(account key)",
    ] {
        let (text, expected) = case.split_once(" => ").unwrap();
        let config = AzureTableConfig::from_connection_string(text, "t00").unwrap();
        config.validate().unwrap();
        assert_eq!(shown(&config), expected);
        assert!(!format!("{config:?}").contains("a2V5"));
    }
}

#[test]
fn missing_parts_come_from_the_environment() {
    let with = |name: &'static str, value: &'static str| {
        move |asked: &str| (asked == name).then(|| value.to_owned())
    };
    let found =
        |url: &str, name, value| parse_url(url, with(name, value)).map(|config| shown(&config));
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
fn invalid_urls_are_refused_without_showing_secrets() {
    let cases = [
        "azure-table:contoso => `azure-table://`",
        "azure-table:///silos => names no account",
        "azure-table://contoso:443/silos => without a port",
        "azure-table://bo:hunter2@contoso/silos => names a user",
        "azure-table://contoso/a => 3 to 63",
        "azure-table://contoso/a-b-c => 3 to 63",
        "azure-table://contoso/silos?colour=hunter2 => `colour` is no option",
        "azure-table://contoso/silos?account_key=hunter2! => base64",
        "azure-table://contoso/silos?sas=hunter2 => `sig`",
        "azure-table://contoso/silos?account_key=aHVudGVyMg==&sas=sig%3Dhunter2 => more than one credential",
        "azure-table://contoso/silos?endpoint=hunter2 => not a URL",
        "azure-table://contoso/silos?endpoint=https://h/?sig=hunter2 => a URL alone",
        "azure-table://contoso/silos?credential=great => developer",
        "azure-table://contoso/silos?operation_timeout=0s => 10 ms",
        "azure-table:///silos?connection_string=AccountKey%3Dhunter2 => names no account",
        "azure-table:///silos?connection_string=AccountName%3Da1%3BColour%3Dhunter2 => `Colour`",
        "azure-table:///silos?connection_string=hunter2 => Name=value",
    ];
    urls_are_refused(read, "hunter2", &cases);
}
