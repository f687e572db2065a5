//! Chromium, started for one test; it ends with the test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use membership_testbed::install;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use url::Url;

pub const PATIENCE: Duration = Duration::from_secs(40);

/// A command of Chromium's driver alone.
#[derive(Debug)]
struct OfChromium {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for OfChromium {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, url::ParseError> {
        base.join(&format!(
            "session/{}/{}",
            session.unwrap_or_default(),
            self.path
        ))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}

/// Keys as WebDriver names them.
pub const ENTER: &str = "\u{e007}";
pub const ESCAPE: &str = "\u{e00c}";
pub const DOWN: &str = "\u{e015}";

pub struct Chromium {
    pub driver: Client,
    /// Ends with this, and the browser with it.
    process: Child,
    folder: tempfile::TempDir,
}

impl Chromium {
    /// With these arguments of the browser, too.
    pub async fn start(more: &[&str]) -> Self {
        let say = |line: &str| eprintln!("browser: {line}");
        let browser = install::chromium(&install::home(), &say).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let fonts = folder.path().join("fonts.conf");
        let text = format!(
            "<?xml version=\"1.0\"?><!DOCTYPE fontconfig SYSTEM \"fonts.dtd\"><fontconfig><dir>{}</dir><cachedir>{}</cachedir></fontconfig>",
            browser.fonts.display(),
            folder.path().join("fonts").display()
        );
        std::fs::write(&fonts, text).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        drop(port);
        let mut command = Command::new(&browser.driver);
        command
            .arg(format!("--port={}", address.port()))
            .env("FONTCONFIG_FILE", &fonts)
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(libraries) = &browser.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        let process = command.spawn().unwrap();
        let binary = std::fs::canonicalize(&browser.program).unwrap();
        let usual = [
            "--headless=new",
            // Root has no sandbox of its own, and containers have none.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ];
        let arguments: Vec<&str> = usual.iter().chain(more).copied().collect();
        let capabilities = json!({
            "goog:chromeOptions": {"binary": binary, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let capabilities = capabilities.as_object().unwrap().clone();
        let (url, until) = (format!("http://{address}"), Instant::now() + PATIENCE);
        let driver = loop {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            builder.capabilities(capabilities.clone());
            match builder.connect(&url).await {
                Ok(driver) => break driver,
                Err(error) => assert!(Instant::now() < until, "no browser: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        Self {
            driver,
            process,
            folder,
        }
    }

    pub async fn size(&self, width: u32, height: u32) {
        let screen = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.command("Emulation.setDeviceMetricsOverride", screen)
            .await;
    }

    pub async fn scheme(&self, scheme: &str) {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", media).await;
    }

    /// Waits until what has changed is on the screen: two frames.
    pub async fn is_drawn(&self) {
        let script = "const done = arguments[arguments.length - 1]; requestAnimationFrame(() => requestAnimationFrame(() => done(true)))";
        let drawn = self.driver.execute_async(script, Vec::new()).await;
        assert_eq!(drawn.unwrap(), json!(true));
    }

    /// Without scroll bars, which differ from machine to machine.
    pub async fn hide_scroll_bars(&self) {
        let hidden = json!({"hidden": true});
        self.command("Emulation.setScrollbarsHidden", hidden).await;
    }

    /// What is in sight, as WebP: a tenth of the bytes of PNG.
    pub async fn small_picture(&self) -> Vec<u8> {
        let format = json!({"format": "webp", "quality": 80});
        let taken = self.command("Page.captureScreenshot", format).await;
        let data = taken["data"].as_str().unwrap();
        base64::engine::general_purpose::STANDARD
            .decode(data)
            .unwrap()
    }

    async fn command(&self, name: &str, parameters: Value) -> Value {
        let body = json!({"cmd": name, "params": parameters});
        let path = "goog/cdp/execute";
        self.driver
            .issue_cmd(OfChromium { path, body })
            .await
            .unwrap()
    }

    pub async fn open(&self, url: &str) {
        self.driver.goto(url).await.unwrap();
    }

    /// Presses a key where the focus is.
    pub async fn press(&self, key: &str) {
        let focused = self.driver.active_element().await.unwrap();
        focused.send_keys(key).await.unwrap();
    }

    /// What a script gives.
    pub async fn run(&self, script: &str) -> Value {
        self.driver.execute(script, Vec::new()).await.unwrap()
    }

    /// Waits until a script gives true; gives how long it took.
    #[track_caller]
    pub fn wait(&self, script: &str) -> impl Future<Output = Duration> {
        let at = std::panic::Location::caller();
        async move {
            let began = Instant::now();
            while self.run(script).await != json!(true) {
                if began.elapsed() > PATIENCE {
                    let text = self
                        .run("return document.body.innerText.slice(0, 2000)")
                        .await;
                    panic!("{at}: not true: {script}\n{text}");
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            began.elapsed()
        }
    }

    /// A picture, kept in the target folder for people to look at.
    pub async fn picture(&self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{name}.png"));
        let picture = self.driver.screenshot().await.unwrap();
        std::fs::write(path, picture).unwrap();
    }

    /// Nothing was asked of another server, and nothing was complained about.
    pub async fn is_clean(&self, origin: &str) {
        let asked = self
            .run("return performance.getEntriesByType('resource').map(e => e.name)")
            .await;
        let asked = asked.as_array().unwrap();
        assert!(!asked.is_empty());
        for url in asked {
            assert!(url.as_str().unwrap().starts_with(origin), "{url}");
        }
        let (path, body) = ("se/log", json!({"type": "browser"}));
        let said = self.driver.issue_cmd(OfChromium { path, body }).await;
        assert_eq!(said.unwrap(), json!([]));
    }

    /// The faults that axe-core calls serious or critical.
    pub async fn faults(&self) -> Vec<Value> {
        let say = |line: &str| eprintln!("browser: {line}");
        let axe = install::axe(&install::home(), &say).unwrap();
        let axe = std::fs::read_to_string(axe).unwrap();
        self.driver.execute(&axe, Vec::new()).await.unwrap();
        let script = "const done = arguments[arguments.length - 1]; axe.run().then(found => done(found.violations.map(v => ({id: v.id, impact: v.impact, where: v.nodes.map(n => n.html.slice(0, 200)).slice(0, 5)}))))";
        let found = self.driver.execute_async(script, Vec::new()).await.unwrap();
        let found = found.as_array().unwrap().clone();
        let is_serious =
            |fault: &Value| matches!(fault["impact"].as_str(), Some("serious" | "critical"));
        found.into_iter().filter(is_serious).collect()
    }

    pub async fn end(self) {
        let _ = self.driver.clone().close().await;
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // A driver that is killed leaves its browser, whose profile is in the folder of this test.
        for browser in started_in(self.folder.path()) {
            let _ = kill_process(browser, Signal::KILL);
        }
    }
}

fn started_in(folder: &Path) -> Vec<Pid> {
    let folder = folder.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_it = |process: &std::fs::DirEntry| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&folder)
    };
    all.filter(is_it)
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .collect()
}

/// How long something may take: as long as users are promised on a machine that does nothing else
/// (`MEMBERSHIP_ALONE` is set), and else ten times that.
pub fn most(promised: Duration) -> Duration {
    match std::env::var_os("MEMBERSHIP_ALONE") {
        Some(_) => promised,
        None => promised * 10,
    }
}
