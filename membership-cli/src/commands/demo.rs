//! `membership demo`: starts silos as processes of this program, kills some of them, and checks
//! that the others agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::config_file::PresetName;
use crate::events;
use crate::exit::{Exit, Failure, install};
use crate::fleet::{Event, Fleet, Member};
use crate::out::{Out, Paint};
use crate::session::Session;
use crate::stop::Stops;
use crate::text::count;

/// Start a cluster of real processes on this machine, kill some, and watch the others agree
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many silos: 2 to 20
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=20))]
    silos: u8,
    /// How many of them to kill; fewer than --silos
    #[cfg_attr(feature = "gossip", doc = "(with --gossip fewer than half)")]
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=19))]
    kill: u8,
    /// How fast they are: local detects a crash within seconds, lan is for production
    #[arg(long, default_value = "local")]
    preset: PresetName,
    /// Members without any store, which agree by gossip, instead of silos with a table; ends within
    /// half a minute
    #[cfg(feature = "gossip")]
    #[arg(long, conflicts_with = "preset")]
    gossip: bool,
    /// JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// The whole demo ends within a minute.
const TIMEOUT: Duration = Duration::from_secs(57);

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    if args.kill >= args.silos {
        return Err(Failure::usage(format!(
            "--kill {} leaves nobody of {}: kill fewer than that",
            args.kill,
            count(args.silos.into(), "silo")
        )));
    }
    #[cfg(feature = "gossip")]
    if args.gossip {
        let (members, kill) = (args.silos.into(), args.kill.into());
        return super::demo_gossip::run(members, kill, args.json, session).await;
    }
    if !session.has("sqlite") {
        return Err(Failure::usage(format!(
            "the demo needs the feature `sqlite`; install it with: {}",
            install("sqlite")
        )));
    }
    let cannot = |e: std::io::Error| Failure::new(Exit::Failed, format!("cannot start: {e}"));
    let mut stops = Stops::listen(false).map_err(cannot)?;
    let folder = tempfile::Builder::new()
        .prefix("membership-demo-")
        .tempdir()
        .map_err(cannot)?;
    let mut demo = Demo {
        fleet: Fleet::new("silo"),
        out: &mut session.out,
        silos: BTreeMap::new(),
        shown: None,
        began: Instant::now(),
        json: args.json,
    };
    let done = tokio::select! {
        biased;
        _ = stops.next() => Err(Failure::new(Exit::Failed, "stopped before the end")),
        done = tokio::time::timeout(TIMEOUT, demo.run(&args, folder.path())) => {
            done.unwrap_or_else(|_| Err(Failure::new(Exit::Failed, format!("the silos did not agree within {} s", TIMEOUT.as_secs()))))
        }
    };
    // In any case: first the processes go, then their files.
    demo.fleet.kill_all().await;
    folder.close().map_err(|e| {
        Failure::new(
            Exit::Failed,
            format!("cannot remove the temporary folder: {e}"),
        )
    })?;
    done
}

/// What is known of one silo.
#[derive(Default)]
struct Known {
    address: Option<String>,
    view: Option<(u64, String, Vec<Member>)>,
    /// When it published the deaths of all that were killed.
    saw_deaths_at: Option<Instant>,
}

struct Demo<'a> {
    fleet: Fleet<Event>,
    out: &'a mut Out,
    silos: BTreeMap<usize, Known>,
    /// The newest view that was shown.
    shown: Option<(u64, Vec<Member>)>,
    began: Instant,
    /// Objects instead of text.
    json: bool,
}

impl Demo<'_> {
    async fn run(&mut self, args: &Args, folder: &std::path::Path) -> Result<Exit, Failure> {
        let (silos, kill) = (usize::from(args.silos), usize::from(args.kill));
        let table = "sqlite:membership.db";
        self.say(
            Paint::Bold,
            &format!(
                "starting {} (preset {}) over {}/membership.db",
                count(silos, "silo"),
                args.preset.as_str(),
                folder.display()
            ),
        );
        self.event(json!({"event": "starting", "silos": silos, "folder": folder}));
        for index in 0..silos {
            self.silos.insert(index, Known::default());
            let name = self.fleet.name(index);
            let options = [
                ["--cluster", "demo"],
                ["--listen", "127.0.0.1:0"],
                ["--table", table],
                ["--preset", args.preset.as_str()],
                ["--name", &name],
            ];
            self.fleet
                .start(index, "silo", options.as_flattened(), folder)?;
        }
        self.until(|demo| demo.silos.values().all(|known| known.active() == silos))
            .await?;
        self.say(
            Paint::Green,
            &format!("all {silos} are Active, and each of them knows it"),
        );
        self.event(json!({"event": "all_active", "silos": silos}));

        // The last ones; the leader, which is among the first, goes only if no other is left.
        let victims: Vec<usize> = (silos - kill..silos).collect();
        let names: Vec<String> = victims
            .iter()
            .filter_map(|i| self.silos.get(i)?.address.clone())
            .collect();
        let dead: BTreeSet<String> = names.iter().cloned().collect();
        self.fleet.kill_many(&victims).await;
        let killed = Instant::now();
        self.say(
            Paint::Red,
            &format!("killed {} (SIGKILL)", names.join(", ")),
        );
        self.event(json!({"event": "killed", "silos": names}));
        for index in &victims {
            self.silos.remove(index);
        }
        self.until(|demo| {
            for known in demo
                .silos
                .values_mut()
                .filter(|known| known.saw_deaths_at.is_none())
            {
                if known.has_dead(&dead) {
                    known.saw_deaths_at = Some(Instant::now());
                }
            }
            demo.silos
                .values()
                .all(|known| known.saw_deaths_at.is_some())
        })
        .await?;
        let last = self
            .silos
            .values()
            .filter_map(|known| known.saw_deaths_at)
            .max()
            .unwrap_or(killed);
        // Versions may differ for as long as a message takes; equal versions must be equal views.
        self.until(|demo| demo.same_version()).await?;
        self.verdict(last.duration_since(killed))
    }

    /// Takes output of the silos until `done`.
    async fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> Result<(), Failure> {
        while !done(self) {
            let (index, event) = self.fleet.next().await?;
            self.on_event(index, event)?;
        }
        Ok(())
    }

    fn on_event(&mut self, index: usize, event: Event) -> Result<(), Failure> {
        match event {
            Event::Active { silo } => {
                if let Some(known) = self.silos.get_mut(&index) {
                    known.address = Some(silo);
                }
            }
            Event::View {
                version,
                digest,
                members,
            } => {
                self.compare(version, &digest)?;
                self.show(version, &members);
                if let Some(known) = self.silos.get_mut(&index) {
                    known.view = Some((version, digest, members));
                }
            }
            Event::Terminated { cause } if !self.fleet.was_killed(index) => {
                return Err(Failure::new(
                    Exit::Failed,
                    format!("{} stopped: {cause}", self.fleet.name(index)),
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// Equal versions must be equal views on all silos.
    fn compare(&self, version: u64, digest: &str) -> Result<(), Failure> {
        let same = |known: &Known| {
            known
                .view
                .as_ref()
                .is_none_or(|(v, d, _)| *v != version || d == digest)
        };
        if self.silos.values().all(same) {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Failed,
            format!("two silos have different views of version {version}"),
        ))
    }

    /// Shows what a new version changed.
    fn show(&mut self, version: u64, members: &[Member]) {
        if self
            .shown
            .as_ref()
            .is_some_and(|(shown, _)| *shown >= version)
        {
            return;
        }
        let before = self
            .shown
            .take()
            .map_or_else(Vec::new, |(_, members)| members);
        for member in members.iter().filter(|m| !before.contains(m)) {
            let paint = match member.status.as_str() {
                "Active" => Paint::Green,
                "Dead" => Paint::Red,
                _ => Paint::Yellow,
            };
            let cause = member
                .cause
                .as_ref()
                .map_or_else(String::new, |cause| format!(", {cause}"));
            let status = self.out.paint(paint, format!("{}{cause}", member.status));
            self.line(&format!("version {version:>3}  {}  {status}", member.silo));
            self.event(json!({
                "event": "changed", "version": version, "silo": member.silo,
                "status": member.status, "cause": member.cause,
            }));
        }
        self.shown = Some((version, members.to_vec()));
    }

    fn same_version(&self) -> bool {
        let versions: BTreeSet<Option<u64>> = self
            .silos
            .values()
            .map(|known| known.view.as_ref().map(|(v, ..)| *v))
            .collect();
        versions.len() == 1
    }

    fn verdict(&mut self, took: Duration) -> Result<Exit, Failure> {
        let views: BTreeSet<(u64, String)> = self
            .silos
            .values()
            .filter_map(|known| known.view.as_ref().map(|(v, d, _)| (*v, d.clone())))
            .collect();
        let survivors = count(self.silos.len(), "survivor");
        self.line("");
        self.line(&format!(
            "time until every survivor published the death: {:.1} s",
            took.as_secs_f64()
        ));
        match views.first() {
            Some((version, digest)) if views.len() == 1 => {
                self.event(json!({
                    "event": "agreed", "survivors": self.silos.len(), "version": version,
                    "digest": digest, "seconds": took.as_secs_f64(),
                }));
                self.line(&format!("final version: {version}"));
                self.say(
                    Paint::Green,
                    &format!("{survivors}, one view: digest {digest}"),
                );
                Ok(Exit::Ok)
            }
            _ => Err(Failure::new(
                Exit::Failed,
                format!("{survivors}, but {} different views", views.len()),
            )),
        }
    }

    fn say(&mut self, paint: Paint, text: &str) {
        let text = self.out.paint(paint, text);
        self.line(&text);
    }

    /// With --json what happened is an object, and the text is left out.
    fn event(&mut self, event: Value) {
        if self.json {
            self.out.line(events::timed(event));
        }
    }

    fn line(&mut self, text: &str) {
        if self.json {
            return;
        }
        if text.is_empty() {
            return self.out.line("");
        }
        self.out.line(format_args!(
            "{:>5.1} s  {text}",
            self.began.elapsed().as_secs_f64()
        ));
    }
}

impl Known {
    /// How many silos are Active in its view; 0 before it is Active itself.
    fn active(&self) -> usize {
        let members = self
            .view
            .as_ref()
            .map_or(&[][..], |(_, _, members)| members);
        if self.address.is_none() {
            0
        } else {
            members.iter().filter(|m| m.status == "Active").count()
        }
    }

    fn has_dead(&self, dead: &BTreeSet<String>) -> bool {
        let Some((_, _, members)) = &self.view else {
            return false;
        };
        dead.iter().all(|silo| {
            members.iter().any(|m| {
                m.silo == *silo && m.status == "Dead" && m.cause.as_deref() == Some("voted")
            })
        })
    }
}
