//! The suite on an account of yours, of which only the URL is known. Nothing is sent.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;

use async_trait::async_trait;
use conformance_tests::servers::Servers;
use conformance_tests::{Backend, Capability, Reason, Stop};
use membership_core::ClusterName;
use support::shell::Shell;

/// An account, as `MEMBERSHIP_TEST_AZURITE_URL` names it.
struct Account(&'static str);

#[async_trait]
impl Servers for Account {
    fn url(&self) -> String {
        self.0.to_owned()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        vec![([127, 0, 0, 1], 443).into()]
    }

    fn is_external(&self) -> bool {
        true
    }

    async fn set_running(&self, _: bool) -> Result<(), Stop> {
        Err(Stop::failed("it is external"))
    }
}

const KEY: &str = "azure-table://contoso/membership?account_key=QUJD%2B/==";
const SIGNED: &str = "azure-table://contoso/membership?sas=sv%3D2019%26sig%3Dabc";
const LOCAL: &str = "azure-table://a/membership?account_key=QUJD&endpoint=http://127.0.0.1:443/a";

#[test]
fn what_an_account_does_not_allow_is_not_applicable() {
    let lacks = |url| {
        let backend = support::backend(Account(url));
        move |what, why| backend.not_applicable().contains(&(what, why))
    };
    let raw = [
        Capability::RawAccess,
        Capability::Wipe,
        Capability::SaveAndRestore,
    ];
    for (url, proxied, has_key) in [
        (KEY, false, true),
        (SIGNED, false, false),
        (LOCAL, true, true),
    ] {
        let lacks = lacks(url);
        assert!(lacks(Capability::Restart, Reason::Managed), "{url}");
        // A client that knows no address cannot be led through a proxy.
        assert_eq!(lacks(Capability::Proxy, Reason::NoProxy), !proxied, "{url}");
        for what in raw {
            assert_eq!(
                lacks(what, Reason::OnlyAddress),
                !has_key,
                "{url}: {what:?}"
            );
        }
    }
}

#[test]
fn the_address_of_an_account_follows_from_its_name() {
    let cluster: ClusterName = "blue".parse().unwrap();
    let endpoint = |url| Shell::of(url, &cluster).map(|shell| shell.endpoint);
    let public = "https://contoso.table.core.windows.net";
    assert_eq!(endpoint(KEY).as_deref(), Some(public));
    assert_eq!(endpoint(LOCAL).as_deref(), Some("http://127.0.0.1:443/a"));
    assert_eq!(endpoint(SIGNED), None, "it cannot sign requests of its own");
}
