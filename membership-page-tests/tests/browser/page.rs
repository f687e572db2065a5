//! Five silos on the page: at once, a death, why, by mouse and by keyboard, without a script.

use std::time::{Duration, Instant};

use fantoccini::Locator;
use serde_json::json;

use super::chromium::{Chromium, DOWN, ENTER, ESCAPE, most};
use super::cluster::Cluster;

const FIVE_ACTIVE: &str =
    "return document.querySelectorAll('#rows tbody tr .badge.s-Active').length === 5";
const LIVE: &str = "return document.getElementById('live').className === 'good'";

#[tokio::test(flavor = "multi_thread")]
async fn five_silos_a_death_and_why() {
    let mut cluster = Cluster::start(5);
    let (origin, _dashboard) = cluster.dashboard(&[]);
    let browser = Chromium::start(&[]).await;
    browser.size(1280, 1100).await;
    let began = Instant::now();
    browser.open(&origin).await;
    browser.wait(FIVE_ACTIVE).await;
    let took = began.elapsed();
    println!("five silos are shown after {took:?}");
    assert!(
        took < most(Duration::from_secs(1)),
        "five silos after {took:?}"
    );
    browser.wait(LIVE).await;
    browser.run("window.sameDocument = true").await;

    let (dead, process) = &mut cluster.silos[0];
    let dead = dead.clone();
    process.kill();
    let row = format!("#rows tr[data-silo=\"{dead}\"]");
    let is_dead = format!("return document.querySelector('{row} .badge.s-Dead') !== null");
    let took = browser.wait(&is_dead).await;
    // As `membership demo` promises with this preset.
    assert!(took < Duration::from_secs(10), "Dead after {took:?}");
    assert_eq!(browser.run("return window.sameDocument").await, json!(true));
    let in_time_line = format!(
        "return [...document.querySelectorAll('#timeline li.w-dead')].some(li => li.innerText.includes('{dead}'))"
    );
    browser.wait(&in_time_line).await;

    // By mouse.
    let link = format!("{row} a.why");
    let link = browser.driver.find(Locator::Css(&link)).await.unwrap();
    link.click().await.unwrap();
    let explained = format!(
        "return document.getElementById('why').open && document.getElementById('why-title').textContent.includes('{dead}') && document.getElementById('why-title').textContent.includes('is Dead, voted')"
    );
    browser.wait(&explained).await;
    let votes = "return document.getElementById('why-lines').innerText.includes('missed probe')";
    browser.wait(votes).await;
    browser.picture("why").await;
    browser.press(ESCAPE).await;
    browser
        .wait("return !document.getElementById('why').open")
        .await;
    let back = format!("return document.activeElement?.dataset.silo === '{dead}'");
    browser.wait(&back).await;

    // By keyboard: the row below it.
    browser.press(DOWN).await;
    let chosen = browser
        .run("return document.activeElement.dataset.silo")
        .await;
    assert!(chosen.is_string() && chosen != json!(dead), "{chosen}");
    browser.press(ENTER).await;
    browser
        .wait("return document.getElementById('why').open && document.getElementById('why-title').textContent.includes('is not dead: it is Active')")
        .await;
    // A living one has neighbours on the rings.
    browser
        .wait("return document.querySelectorAll('#why-ring a').length >= 3")
        .await;
    let inside = "return document.getElementById('why').contains(document.activeElement)";
    assert_eq!(browser.run(inside).await, json!(true));
    let faults = browser.faults().await;
    assert!(faults.is_empty(), "{faults:#?}");
    browser.press(ESCAPE).await;

    for scheme in ["light", "dark"] {
        for (width, height) in [(1280, 1100), (360, 1400)] {
            browser.scheme(scheme).await;
            browser.size(width, height).await;
            browser
                .wait("return document.getElementById('why').open === false")
                .await;
            let fits = "return document.documentElement.scrollWidth <= innerWidth";
            assert_eq!(browser.run(fits).await, json!(true), "{width} {scheme}");
            let faults = browser.faults().await;
            assert!(faults.is_empty(), "{width} {scheme}: {faults:#?}");
            browser.picture(&format!("five-{width}-{scheme}")).await;
        }
    }
    browser.is_clean(&origin).await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silo_shows_the_cluster_as_it_sees_it() {
    let mut cluster = Cluster::start(3);
    let origin = cluster.silos[2].1.http();
    let browser = Chromium::start(&[]).await;
    browser.open(&origin).await;
    browser
        .wait("return document.querySelectorAll('#rows tbody tr .badge.s-Active').length === 3")
        .await;
    browser.wait(LIVE).await;
    cluster.silos[0].1.kill();
    browser
        .wait("return document.querySelectorAll('#rows tbody tr .badge.s-Dead').length === 1")
        .await;
    browser.is_clean(&origin).await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_says_what_it_does_and_needs_a_yes() {
    let cluster = Cluster::start(3);
    let (origin, _dashboard) = cluster.dashboard(&["--allow-changes"]);
    let evicted = &cluster.silos[1].0;
    let browser = Chromium::start(&[]).await;
    browser.open(&origin).await;
    browser.wait(LIVE).await;
    let row = format!("#rows tr[data-silo=\"{evicted}\"]");
    browser
        .run(&format!("document.querySelector('{row} a.why').click()"))
        .await;
    browser
        .wait("return !document.getElementById('why-evict').hidden")
        .await;
    browser
        .run("document.getElementById('why-evict').click()")
        .await;
    browser
        .wait("return document.getElementById('confirm').open && document.getElementById('confirm-text').textContent.includes('it is alive, and will stop')")
        .await;
    let faults = browser.faults().await;
    assert!(faults.is_empty(), "{faults:#?}");
    browser
        .run("document.getElementById('confirm-reason').focus()")
        .await;
    browser.press("its disk").await;
    browser.press(ENTER).await;
    browser
        .wait("return document.getElementById('confirm-result').textContent.startsWith('Not confirmed')")
        .await;
    browser.picture("evict").await;
    browser
        .run("document.getElementById('confirm-yes').focus()")
        .await;
    browser.press("yes").await;
    browser.press(ENTER).await;
    browser
        .wait("return document.getElementById('confirm-result').textContent.includes('is Dead (evicted)')")
        .await;
    let is_told =
        format!("return document.querySelector('{row} .note').textContent.includes('its disk')");
    browser.wait(&is_told).await;
    browser.is_clean(&origin).await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_script_it_is_a_table() {
    let cluster = Cluster::start(2);
    let (origin, _dashboard) = cluster.dashboard(&[]);
    let browser = Chromium::start(&["--blink-settings=scriptEnabled=false"]).await;
    browser.open(&origin).await;
    let rows = browser
        .driver
        .find_all(Locator::Css("#rows tbody tr .badge.s-Active"));
    assert_eq!(rows.await.unwrap().len(), 2);
    let controls = browser.driver.find(Locator::Id("controls")).await.unwrap();
    assert!(!controls.is_displayed().await.unwrap());
    let link = browser
        .driver
        .find(Locator::Css("#rows a.why"))
        .await
        .unwrap();
    // Without scripts the driver cannot click.
    let leads = link.attr("href").await.unwrap().unwrap();
    browser.open(&format!("{origin}{leads}")).await;
    let text = browser.driver.find(Locator::Css("body")).await.unwrap();
    let text = text.text().await.unwrap();
    assert!(text.contains("is not dead: it is Active"), "{text}");
    browser.end().await;
}
