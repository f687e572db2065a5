//! A thousand rows, and names that try to be more than names.

use std::time::Duration;

use membership::{
    ClusterKey, CommitId, CommitOutcome, CommitRequest, InitializeRequest, InstanceId,
    MembershipEntry, MembershipTable, SharedSettings, SiloAddress, SiloStatus, TableExt, TableId,
    WallTime, connect,
};
use serde_json::json;

use super::chromium::{Chromium, most};
use super::cluster::dashboard;

const HOSTILE: &str =
    "<img src=x onerror=\"window.broken=1\"></td><script>window.broken=1</script>";

/// A table with these rows.
async fn table(folder: &tempfile::TempDir, silos: u32, name: impl Fn(u32) -> String) -> String {
    let url = format!("sqlite:{}", folder.path().join("membership.db").display());
    let table = connect(&url, "default".parse().unwrap()).await.unwrap();
    let key = ClusterKey::new([7; 32]);
    let request = InitializeRequest::new(TableId::new(7), SharedSettings::default(), key);
    table.initialize(&request).await.unwrap();
    let all: Vec<u32> = (0..silos).collect();
    let most = table.limits().rows_per_commit.clamp(1, 50);
    for (number, some) in all.chunks(most).enumerate() {
        let (now, _) = table.read_all().await.unwrap();
        let entries = some.iter().map(|n| {
            let [_, _, high, low] = n.to_be_bytes();
            let silo = SiloAddress::new([10, 0, high, low].into(), 7100, 1_764_000_000_000);
            let mut entry = MembershipEntry::new(
                silo,
                InstanceId::new((*n).into()),
                WallTime::from_millis(1_764_000_000_000),
            );
            entry.status = SiloStatus::Active;
            entry.info.silo_name = name(*n);
            entry.info.zone = format!("z{}", n % 5);
            entry
        });
        let id = CommitId::new(number as u128 + 1);
        let request = CommitRequest::new(now.token, id, None, entries.collect::<Vec<_>>(), [], []);
        let done = table.commit(&request).await.unwrap();
        assert!(matches!(done, CommitOutcome::Committed(_)));
    }
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_rows_are_there_at_once_and_scroll() {
    let folder = tempfile::tempdir().unwrap();
    let url = table(&folder, 1_000, |n| format!("silo-{n}")).await;
    let (origin, _dashboard) = dashboard(&url, &[]);
    let browser = Chromium::start(&[]).await;
    browser.size(1280, 1000).await;
    browser.open(&origin).await;
    browser
        .wait("return document.getElementById('rows').dataset.drawn !== undefined && document.querySelectorAll('#rows tbody tr').length === 1000")
        .await;
    let drawn = browser
        .run("return Number(document.getElementById('rows').dataset.drawn)")
        .await;
    let millis = u128::from(drawn.as_u64().unwrap());
    println!("1,000 rows are drawn in {drawn} ms");
    assert!(
        millis <= most(Duration::from_millis(500)).as_millis(),
        "drawn in {drawn} ms"
    );
    // Every row anew, in another order.
    let script = "const order = document.getElementById('order'); order.value = 'name'; const began = performance.now(); order.dispatchEvent(new Event('input', {bubbles: true})); document.body.getBoundingClientRect(); return performance.now() - began";
    let took = browser.run(script).await.as_f64().unwrap();
    println!("1,000 rows are sorted in {took} ms");
    assert!(
        took <= most(Duration::from_millis(500)).as_secs_f64() * 1000.0,
        "sorted in {took} ms"
    );
    browser
        .wait("const rows = document.querySelectorAll('#rows tbody tr'); const last = rows[rows.length - 1]; last.scrollIntoView(); const box = last.getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight")
        .await;
    browser
        .wait("const search = document.getElementById('search'); search.value = 'zone=z3,name=silo-33'; search.dispatchEvent(new Event('input', {bubbles: true})); return document.querySelectorAll('#rows tbody tr').length === 3 && document.getElementById('shown').textContent === '3 of 1000 silos'")
        .await;
    browser
        .run("const search = document.getElementById('search'); search.value = ''; const group = document.getElementById('group'); group.value = 'zone'; group.dispatchEvent(new Event('input', {bubbles: true}))")
        .await;
    browser
        .wait("return document.querySelectorAll('#rows tbody tr.group').length === 5")
        .await;
    // Not by and by, as the page scrolls for people: nothing is drawn in between.
    browser.run("scrollTo({top: 0, behavior: 'instant'})").await;
    browser.wait("return scrollY === 0").await;
    browser.is_drawn().await;
    browser.picture("thousand").await;
    browser.is_clean(&origin).await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_name_is_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let url = table(&folder, 2, |_| HOSTILE.to_owned()).await;
    let (origin, _dashboard) = dashboard(&url, &[]);
    let browser = Chromium::start(&[]).await;
    browser.open(&origin).await;
    browser
        .wait("return document.getElementById('live').className === 'good'")
        .await;
    let shown = browser
        .run("return document.querySelector('#rows .name').textContent")
        .await;
    assert_eq!(shown, json!(HOSTILE));
    browser
        .run("document.querySelector('#rows a.why').click()")
        .await;
    browser
        .wait("return document.getElementById('why-title').textContent.includes('<script>')")
        .await;
    let made = "return [window.broken ?? null, document.querySelectorAll('img, #rows script, dialog script').length]";
    assert_eq!(browser.run(made).await, json!([null, 0]));
    browser.is_clean(&origin).await;
    browser.end().await;
}
