//! The pictures of the page in the documents: five silos, of which one was killed.

use std::path::PathBuf;

use super::chromium::Chromium;
use super::cluster::Cluster;

/// The folder that `cargo xtask pictures` names; or that of the other pictures.
fn into() -> PathBuf {
    let usual = || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::env::var_os("MEMBERSHIP_PICTURES_INTO").map_or_else(usual, PathBuf::from)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "`cargo xtask pictures page` runs it: it proves nothing"]
async fn of_the_documents() {
    let mut cluster = Cluster::start(5);
    let (origin, _dashboard) = cluster.dashboard(&["--ask"]);
    let browser = Chromium::start(&[]).await;
    browser.hide_scroll_bars().await;
    browser.open(&origin).await;
    browser
        .wait("return document.querySelectorAll('#rows tbody tr .badge.s-Active').length === 5")
        .await;
    cluster.silos[1].1.kill();
    browser
        .wait("return document.querySelectorAll('#rows tbody tr .badge.s-Dead').length === 1")
        .await;
    let into = into();
    std::fs::create_dir_all(&into).unwrap();
    for (shape, width, height) in [("wide", 1280, 1000), ("narrow", 360, 1000)] {
        for scheme in ["light", "dark"] {
            browser.scheme(scheme).await;
            browser.size(width, height).await;
            browser.is_drawn().await;
            let picture = browser.small_picture().await;
            let name = format!("page-{shape}-{scheme}.webp");
            std::fs::write(into.join(name), picture).unwrap();
        }
    }
    browser.end().await;
}
