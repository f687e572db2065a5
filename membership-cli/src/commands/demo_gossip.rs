//! `membership demo --gossip`: starts members of a cluster without a store as processes of this
//! program, kills some of them, and checks that the others agree.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::clock;
use crate::events;
use crate::exit::{Exit, Failure};
use crate::fleet::Fleet;
use crate::out::{Out, Paint};
use crate::session::Session;
use crate::stop::Stops;
use crate::text::count;

/// The whole demo ends within half a minute.
const TIMEOUT: Duration = Duration::from_secs(29);
/// So many contact points; a majority of them founds.
const CONTACT_POINTS: usize = 3;
/// For one machine, where a member is silent for a second only if it is dead: a crash is noticed and
/// decided within some seconds. Everything else is as in the preset `lan`.
const CONFIG: &str = "\
heartbeat_interval = \"300ms\"
gossip_interval = \"200ms\"
leader_actions_interval = \"200ms\"
seed_node_timeout = \"1s\"
acceptable_heartbeat_pause = \"2s\"

[downing]
stable_after = \"4s\"
";

/// A line of `gossip --json`, as far as the demo needs it.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Active {
        silo: String,
    },
    View {
        version: String,
        converged: bool,
        leader: Option<String>,
        members: Vec<Seen>,
    },
    Terminated {
        cause: String,
    },
    #[serde(other)]
    Other,
}

/// A member in the view of another one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Seen {
    silo: String,
    status: String,
    unreachable_for: Vec<String>,
}

/// What is known of one member.
#[derive(Default)]
struct Known {
    address: Option<String>,
    version: String,
    converged: bool,
    leader: Option<String>,
    members: Vec<Seen>,
}

impl Known {
    fn up(&self) -> usize {
        self.members.iter().filter(|m| m.status == "up").count()
    }

    /// It agrees with the others that so many are up, and nobody else is there.
    fn agrees_on(&self, up: usize) -> bool {
        self.address.is_some() && self.converged && self.up() == up && self.members.len() == up
    }
}

pub(super) async fn run(
    members: usize,
    kill: usize,
    json: bool,
    session: &mut Session,
) -> Result<Exit, Failure> {
    if 2 * kill >= members {
        return Err(Failure::usage(format!(
            "--kill {kill} leaves no majority of {}: the others would down themselves; kill fewer than half",
            count(members, "member")
        )));
    }
    let cannot = |e: std::io::Error| Failure::new(Exit::Failed, format!("cannot start: {e}"));
    let mut stops = Stops::listen(false).map_err(cannot)?;
    let folder = tempfile::Builder::new()
        .prefix("membership-demo-")
        .tempdir()
        .map_err(cannot)?;
    let mut demo = Demo {
        fleet: Fleet::new("member"),
        out: &mut session.out,
        members: BTreeMap::new(),
        shown: BTreeMap::new(),
        began: Instant::now(),
        json,
    };
    let done = tokio::select! {
        biased;
        _ = stops.next() => Err(Failure::new(Exit::Failed, "stopped before the end")),
        done = tokio::time::timeout(TIMEOUT, demo.run(members, kill, folder.path())) => {
            done.unwrap_or_else(|_| Err(Failure::new(Exit::Failed, format!("the members did not agree within {} s", TIMEOUT.as_secs()))))
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

struct Demo<'a> {
    fleet: Fleet<Event>,
    out: &'a mut Out,
    members: BTreeMap<usize, Known>,
    /// What was said of each member last.
    shown: BTreeMap<String, (String, bool)>,
    began: Instant,
    /// Objects instead of text.
    json: bool,
}

impl Demo<'_> {
    async fn run(&mut self, members: usize, kill: usize, folder: &Path) -> Result<Exit, Failure> {
        let cannot = |e: std::io::Error| Failure::new(Exit::Failed, format!("cannot start: {e}"));
        let key = format!("{:032x}{:032x}\n", clock::random(), clock::random());
        write_secret(&folder.join("secret"), &key).map_err(cannot)?;
        std::fs::write(folder.join("demo.toml"), CONFIG).map_err(cannot)?;
        let places = free(members).map_err(cannot)?;
        self.say(
            Paint::Bold,
            &format!(
                "starting {} without any store; they have a secret in {}",
                count(members, "member"),
                folder.display()
            ),
        );
        self.event(json!({"event": "starting", "silos": members, "folder": folder}));
        for (index, at) in places.iter().enumerate() {
            self.members.insert(index, Known::default());
            self.start(index, *at, &places, folder)?;
        }
        self.until(|demo| demo.members.values().all(|known| known.agrees_on(members)))
            .await?;
        self.say(
            Paint::Green,
            &format!("all {members} are up, and each of them knows that all know it"),
        );
        self.event(json!({"event": "all_active", "silos": members}));

        // The last ones; the leader has the lowest address.
        let victims: Vec<usize> = (members - kill..members).collect();
        let names: Vec<String> = victims
            .iter()
            .filter_map(|index| self.members.remove(index)?.address)
            .collect();
        self.fleet.kill_many(&victims).await;
        let killed = Instant::now();
        self.say(
            Paint::Red,
            &format!("killed {} (SIGKILL)", names.join(", ")),
        );
        self.event(json!({"event": "killed", "silos": names}));
        let left = members - kill;
        self.until(|demo| {
            let versions: BTreeSet<&String> =
                demo.members.values().map(|known| &known.version).collect();
            let agree = demo.members.values().all(|known| known.agrees_on(left));
            agree && versions.len() == 1
        })
        .await?;
        self.verdict(killed.elapsed());
        Ok(Exit::Ok)
    }

    fn start(
        &mut self,
        index: usize,
        at: SocketAddr,
        places: &[SocketAddr],
        folder: &Path,
    ) -> Result<(), Failure> {
        let (at, name) = (at.to_string(), self.fleet.name(index));
        let mut options = vec![
            ["--cluster", "demo"],
            ["--listen", &at],
            ["--secret-file", "secret"],
            ["--config", "demo.toml"],
            ["--name", &name],
        ];
        let seeds: Vec<String> = places
            .iter()
            .take(CONTACT_POINTS)
            .map(ToString::to_string)
            .collect();
        options.extend(seeds.iter().map(|seed| ["--seed", seed.as_str()]));
        self.fleet
            .start(index, "gossip", options.as_flattened(), folder)
    }

    /// Takes output of the members until `done`.
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
                if let Some(known) = self.members.get_mut(&index) {
                    known.address = Some(silo);
                }
            }
            Event::View {
                version,
                converged,
                leader,
                members,
            } => {
                let Some(known) = self.members.get_mut(&index) else {
                    return Ok(());
                };
                (known.version, known.converged) = (version, converged);
                (known.leader, known.members) = (leader, members.clone());
                self.show(&members);
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

    /// Shows what is new, whoever says it first. Members may say it in another order.
    fn show(&mut self, members: &[Seen]) {
        let place = |status: &str| {
            let order = [
                "joining",
                "weakly-up",
                "up",
                "leaving",
                "exiting",
                "down",
                "removed",
            ];
            order.iter().position(|s| *s == status).unwrap_or(0)
        };
        let mut lines = Vec::new();
        for member in members {
            let unreachable = !member.unreachable_for.is_empty();
            let now = (member.status.clone(), unreachable);
            let before = self.shown.get(&member.silo);
            let is_new = before.is_none_or(|(status, was_unreachable)| {
                place(&member.status) > place(status)
                    || (member.status == *status && unreachable && !was_unreachable)
            });
            if is_new {
                self.shown.insert(member.silo.clone(), now);
                lines.push((member.clone(), unreachable));
            }
        }
        let are_there: BTreeSet<&String> = members.iter().map(|m| &m.silo).collect();
        let removed = |(silo, (status, _)): (&String, &(String, bool))| {
            (status == "down" && !are_there.contains(silo)).then(|| silo.clone())
        };
        let removed: Vec<String> = self.shown.iter().filter_map(removed).collect();
        for (member, unreachable) in lines {
            let paint = match member.status.as_str() {
                _ if unreachable => Paint::Red,
                "up" => Paint::Green,
                "down" => Paint::Red,
                _ => Paint::Yellow,
            };
            let suffix = if unreachable { ", unreachable" } else { "" };
            let text = format!("{}{suffix}", member.status);
            let text = self.out.paint(paint, text);
            self.line(&format!("{}  {text}", member.silo));
            self.event(json!({
                "event": "changed", "silo": member.silo, "status": member.status,
                "unreachable": unreachable,
            }));
        }
        for silo in removed {
            let text = self.out.paint(Paint::Dim, "removed".to_owned());
            self.line(&format!("{silo}  {text}"));
            self.event(json!({"event": "changed", "silo": silo, "status": "removed", "unreachable": false}));
            self.shown.insert(silo, ("removed".to_owned(), false));
        }
    }

    fn verdict(&mut self, took: Duration) {
        let one = self.members.values().next();
        let (version, leader) = one.map_or_else(Default::default, |known| {
            (known.version.clone(), known.leader.clone())
        });
        let survivors = self.members.len();
        self.event(json!({
            "event": "agreed", "survivors": survivors, "version": version, "leader": leader,
            "seconds": took.as_secs_f64(),
        }));
        self.line("");
        self.line(&format!(
            "time until all survivors agreed that the others are removed: {:.1} s",
            took.as_secs_f64()
        ));
        self.line(&format!("leader: {}", leader.unwrap_or_default()));
        self.say(
            Paint::Green,
            &format!("{}, one state: {version}", count(survivors, "survivor")),
        );
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

/// Addresses of this machine at which nobody listens, in ascending order.
fn free(count: usize) -> std::io::Result<Vec<SocketAddr>> {
    let listeners: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<_, _>>()?;
    let places: Result<Vec<_>, _> = listeners.iter().map(TcpListener::local_addr).collect();
    let mut places = places?;
    places.sort_unstable();
    Ok(places)
}

#[cfg(unix)]
fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(not(unix))]
fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::write(path, text)
}
