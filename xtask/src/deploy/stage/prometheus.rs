//! A Prometheus that scrapes every two seconds, with the rules as they are but for `for:`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::queries::array;
use super::super::tools::Tools;
use super::super::{RULES, read};
use crate::{Failure, output};

/// In place of what rules say: long enough for several evaluations.
const FOR: &str = "for: 3s";
const LOOK: Duration = Duration::from_millis(500);

/// Ends Prometheus and removes the folder when the standard input ends, which it does with this
/// program, however that ends. Silos end by themselves then.
const SHELL: &str = r#"
trap '' INT TERM HUP
"$@" >"$FOLDER/prometheus.log" 2>&1 </dev/null &
read -r line
kill -9 "$!"
wait
tries=0
while [ -e "$FOLDER" ] && [ "$tries" -lt 100 ]; do
    rm -rf -- "$FOLDER" 2>/dev/null
    [ ! -e "$FOLDER" ] || sleep 0.1
    tries=$((tries + 1))
done
"#;

pub(super) struct Prometheus {
    shell: Child,
    url: String,
    promtool: std::path::PathBuf,
}

impl Prometheus {
    pub(super) fn start(
        tools: &Tools,
        root: &Path,
        folder: &Path,
        port: u16,
        scraped: &[u16],
    ) -> Result<Self, Failure> {
        let rules = read(root, RULES)?;
        fs::write(folder.join("rules.yml"), shortened(&rules))?;
        let targets: Vec<String> = scraped
            .iter()
            .map(|port| format!("\"127.0.0.1:{port}\""))
            .collect();
        fs::write(
            folder.join("prometheus.yml"),
            format!(
                "global: {{ scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s }}\n\
                 rule_files: [rules.yml]\n\
                 scrape_configs: [{{ job_name: membership, static_configs: [{{ targets: [{}] }}] }}]\n",
                targets.join(", ")
            ),
        )?;
        let prometheus = tools.program("prometheus")?;
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", SHELL, "membership-prometheus"])
            .arg(prometheus.get_program());
        shell.arg(format!(
            "--config.file={}",
            folder.join("prometheus.yml").display()
        ));
        shell.arg(format!(
            "--storage.tsdb.path={}",
            folder.join("series").display()
        ));
        shell.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        shell.env("FOLDER", folder);
        for (name, value) in prometheus.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        let shell = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let started = Self {
            shell,
            url: format!("http://127.0.0.1:{port}"),
            promtool: tools.program("promtool")?.get_program().into(),
        };
        started
            .until("Prometheus answers", "vector(1)", super::PATIENCE)
            .map_err(|failure| {
                let log = fs::read_to_string(folder.join("prometheus.log")).unwrap_or_default();
                Failure::new(format!("{failure}\n{log}"))
            })?;
        Ok(started)
    }

    /// The values of an expression now.
    fn query(&self, expression: &str) -> Result<Vec<f64>, Failure> {
        let mut promtool = Command::new(&self.promtool);
        promtool.args(["query", "instant", "--format=json", &self.url, expression]);
        let answer: Value = serde_json::from_str(&output(&mut promtool)?)?;
        let value = |series: &Value| {
            series["value"][1]
                .as_str()
                .and_then(|text| text.parse().ok())
        };
        Ok(array(&answer).iter().filter_map(value).collect())
    }

    /// Waits until the expression has a series.
    pub(super) fn until(
        &self,
        what: &str,
        expression: &str,
        within: Duration,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + within;
        loop {
            // Prometheus may not answer yet.
            let last = match self.query(expression) {
                Ok(values) if !values.is_empty() => return Ok(()),
                Ok(_) => String::from("it has no series"),
                Err(failure) => failure.to_string(),
            };
            if Instant::now() > deadline {
                return Err(Failure::new(format!(
                    "{what}: not within {} s: {expression}: {last}",
                    within.as_secs()
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The expression has a value that is a number.
    pub(super) fn answers(&self, what: &str, expression: &str) -> Result<(), Failure> {
        let values = self
            .query(expression)
            .map_err(|failure| Failure::new(format!("{what}: {failure}")))?;
        match values.iter().any(|value| !value.is_nan()) {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "{what} shows nothing: {expression} has {values:?}"
            ))),
        }
    }

    pub(super) fn fires(&self, alert: &str, within: Duration) -> Result<(), Failure> {
        self.until(&format!("{alert} fires"), &firing(alert), within)
    }

    pub(super) fn silent(&self, alert: &str) -> Result<(), Failure> {
        match self.query(&firing(alert))?.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "{alert} fires, and nothing is wrong yet"
            ))),
        }
    }

    /// Waits until the alert fires no more.
    pub(super) fn ends(&self, alert: &str, within: Duration) -> Result<(), Failure> {
        let gone = format!("absent({})", firing(alert));
        self.until(&format!("{alert} ends"), &gone, within)
    }
}

fn firing(alert: &str) -> String {
    format!("ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}}")
}

/// The same rules, which wait less.
fn shortened(rules: &str) -> String {
    let line = |line: &str| match line.trim_start().starts_with("for: ") {
        true => format!("{}{FOR}\n", &line[..line.len() - line.trim_start().len()]),
        false => format!("{line}\n"),
    };
    rules.lines().map(line).collect()
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_differ_only_in_how_long_they_wait() {
        assert_eq!(
            shortened("  - alert: A\n    expr: b > 0\n    for: 30m\n"),
            "  - alert: A\n    expr: b > 0\n    for: 3s\n"
        );
    }
}
