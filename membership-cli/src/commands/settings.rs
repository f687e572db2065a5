//! `membership settings`: shows the settings that all silos share, or changes them by a commit.

use std::time::Duration;

use clap::Subcommand;
use membership::admin::{Admin, TokioRuntime};
use membership::{ClusterKey, ClusterKeys, Config, ConfigError, SharedSettings};
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::inspect::Inspection;
use crate::out::Paint;
use crate::session::{Session, StoreArgs, TableArgs};
use crate::text::{Grid, clean};

/// Show the settings that all silos share, change them, or rotate the cluster key: settings set i_am_alive_period=30s
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    table: Shared,
    /// One JSON object
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Change settings by one commit; silos apply it as soon as they see it
    Set {
        /// name=value, for example i_am_alive_period=30s
        #[arg(required = true, value_name = "NAME=VALUE")]
        changes: Vec<String>,
    },
    /// Add a new cluster key, by which newcomers prove that they have read the table. The older ones
    /// stay valid until `--finish`
    RotateKey {
        /// Remove the older keys: once every silo has read the table since the new one was added
        #[arg(long, conflicts_with = "now")]
        finish: bool,
        /// Add a new key and remove the older ones in one commit: newcomers and silos that have not
        /// read the table since do not hear each other until they have
        #[arg(long)]
        now: bool,
    },
}

/// The same flags before and after `set`.
#[derive(Debug, clap::Args)]
struct Shared {
    /// Where the membership table is, for example sqlite:membership.db
    #[arg(
        long,
        env = "MEMBERSHIP_TABLE",
        hide_env_values = true,
        value_name = "URL",
        global = true
    )]
    table: Option<String>,
    /// Which cluster in it: [service/]cluster
    #[arg(
        long,
        env = "MEMBERSHIP_CLUSTER",
        value_name = "ID",
        default_value = "default",
        global = true
    )]
    cluster: membership_core::ClusterName,
}

pub(crate) async fn run(args: Args, session: &mut Session) -> Result<Exit, Failure> {
    let Some(url) = args.table.table else {
        return Err(Failure::usage(
            "no table: give --table URL, or set MEMBERSHIP_TABLE",
        ));
    };
    let table = session
        .open(&TableArgs {
            store: StoreArgs { table: url },
            cluster: args.table.cluster,
        })
        .await?;
    if args.action.is_some() {
        session.warn(Inspection::of(table.as_ref()).await?.commit_warning());
    }
    let mut runtime = TokioRuntime;
    let mut admin = Admin::new(table.as_ref(), &mut runtime);
    let done = match &args.action {
        None => None,
        Some(Action::Set { changes }) => Some(admin.settings(|old| changed(old, changes)).await?),
        Some(Action::RotateKey { finish, now }) => {
            let rotation = rotation(*finish, *now)?;
            if *finish {
                has_key(&Inspection::of(table.as_ref()).await?)?;
            }
            Some(admin.cluster_keys(rotation).await?)
        }
    };
    match done {
        _ if args.json => {}
        Some(Some(version)) => session
            .out
            .line(format_args!("changed as of version {version}")),
        Some(None) => session.out.line("nothing to change"),
        None => {}
    }
    if let Some(Action::RotateKey {
        finish: false,
        now: false,
    }) = &args.action
        && !args.json
    {
        session.out.line("once every silo has read this version (see `table_refresh_period`), end with `membership settings rotate-key --finish`");
    }
    let inspection = Inspection::of(table.as_ref()).await?;
    let mut settings =
        serde_json::to_value(&inspection.snapshot.version_row.settings).unwrap_or_default();
    let keys = inspection.cluster_keys();
    if args.json {
        settings["cluster_keys"] = keys.len().into();
        settings["rotation_unfinished"] = keys.are_in_rotation().into();
        session.out.line(settings);
        return Ok(Exit::Ok);
    }
    let mut grid = Grid::new(["SETTING", "VALUE"]);
    for (name, value) in settings.as_object().into_iter().flatten() {
        grid.row([
            (clean(name), Paint::Plain),
            (clean(&plain(value)), Paint::Plain),
        ]);
    }
    let plain = (keys.len().to_string(), Paint::Plain);
    grid.row([("cluster_keys".to_owned(), Paint::Plain), plain]);
    grid.show(&mut session.out);
    if let Some(text) = inspection.rotation() {
        let text = session.out.paint(Paint::Yellow, text);
        session.out.line(text);
    }
    Ok(Exit::Ok)
}

/// A rotation ends only where it has begun: without a key no silo can start.
fn has_key(now: &Inspection) -> Result<(), Failure> {
    match now.snapshot.version_row.core.cluster_keys().is_empty() {
        false => Ok(()),
        true => Err(Failure::new(
            Exit::Unusable,
            "the table has no cluster key, so no silo can start: run `membership settings rotate-key` \
             without --finish",
        )),
    }
}

/// The keys after a step of a rotation; called again after a conflict.
fn rotation(
    finish: bool,
    now: bool,
) -> Result<impl FnMut(&ClusterKeys) -> Result<ClusterKeys, Failure> + Send, Failure> {
    let mut random = [0; 32];
    getrandom::fill(&mut random)
        .map_err(|e| Failure::new(Exit::Failed, format!("no random numbers: {e}")))?;
    let key = ClusterKey::new(random);
    Ok(move |old: &ClusterKeys| match (finish, now) {
        (true, _) => Ok(old.newest()),
        (_, true) => Ok(ClusterKeys::from(key)),
        _ if old.contains(&key) => Ok(old.clone()),
        _ => old.with(key).map_err(|e| Failure::usage(e.to_string())),
    })
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The settings after the changes, validated.
fn changed(old: &SharedSettings, changes: &[String]) -> Result<SharedSettings, Failure> {
    let mut value = serde_json::to_value(old).unwrap_or_default();
    let names: Vec<String> = known().collect();
    for change in changes {
        let Some((name, text)) = change.split_once('=') else {
            return Err(Failure::usage(format!(
                "`{}` is not a change: write name=value",
                clean(change)
            )));
        };
        if !names.iter().any(|n| n == name) {
            return Err(Failure::usage(format!(
                "`{}` is not a shared setting; the shared settings are {}",
                clean(name),
                names.join(", ")
            )));
        }
        let Some(field) = value.get_mut(name) else {
            continue;
        };
        *field = match (&*field, text.parse::<u32>()) {
            (Value::Number(_), Ok(number)) => number.into(),
            (Value::Number(_), Err(_)) => {
                return Err(Failure::usage(format!("`{name}` must be a whole number")));
            }
            _ => text.into(),
        };
    }
    let new: SharedSettings = serde_json::from_value(value).map_err(|e| {
        Failure::usage(format!(
            "invalid value: {e}; write durations like 10s, 2min or 500ms"
        ))
    })?;
    judge(old, &new, changes)?;
    Ok(new)
}

/// Judges the change by the cluster's own settings as silos follow them: they keep what is out of
/// range in the table within its range by themselves, so that it forbids no other change.
fn judge(old: &SharedSettings, new: &SharedSettings, changes: &[String]) -> Result<(), Failure> {
    let sets = |field: &str| changes.iter().any(|c| c.split('=').next() == Some(field));
    let mut judged = old.workable();
    keep(&mut judged, new, sets);
    match validate(&judged) {
        Ok(()) => Ok(()),
        Err(wrong) if sets(wrong.field) => Err(Failure::usage(wrong.to_string())),
        Err(wrong) => Err(Failure::usage(format!(
            "with this change {wrong}: the cluster has that value now, so change both in one command, `membership settings set {} {}=…`",
            clean(&changes.join(" ")),
            wrong.field
        ))),
    }
}

/// Takes the fields that the user sets.
fn keep(into: &mut SharedSettings, from: &SharedSettings, sets: impl Fn(&str) -> bool) {
    if sets("failure_window") {
        into.failure_window = from.failure_window;
    }
    if sets("num_votes_for_death_declaration") {
        into.num_votes_for_death_declaration = from.num_votes_for_death_declaration;
    }
    if sets("death_vote_expiration") {
        into.death_vote_expiration = from.death_vote_expiration;
    }
    if sets("i_am_alive_period") {
        into.i_am_alive_period = from.i_am_alive_period;
    }
    if sets("num_missed_i_am_alive_limit") {
        into.num_missed_i_am_alive_limit = from.num_missed_i_am_alive_limit;
    }
    if sets("max_join_attempt_time") {
        into.max_join_attempt_time = from.max_join_attempt_time;
    }
}

fn known() -> impl Iterator<Item = String> {
    let value = serde_json::to_value(SharedSettings::default()).unwrap_or_default();
    value
        .as_object()
        .cloned()
        .unwrap_or_default()
        .into_iter()
        .map(|(name, _)| name)
}

/// Uses the ranges of [`Config`]: there must be a valid configuration with these settings.
fn validate(new: &SharedSettings) -> Result<(), ConfigError> {
    let mut config = Config::default();
    config.failure_window = new.failure_window;
    config.num_votes_for_death_declaration = new.num_votes_for_death_declaration;
    config.death_vote_expiration = new.death_vote_expiration;
    config.i_am_alive_period = new.i_am_alive_period;
    config.num_missed_i_am_alive_limit = new.num_missed_i_am_alive_limit;
    config.max_join_attempt_time = new.max_join_attempt_time;
    // What each silo chooses for itself allows any shared setting.
    config.max_probe_timeout = config.max_probe_timeout.max(config.probe_timeout());
    config.table_call_timeout = Duration::from_millis(100);
    config.num_probed_silos = 50;
    config.validate()
}

#[cfg(test)]
mod tests {
    use membership::Preset;

    use super::*;

    fn set(changes: &[&str]) -> Result<SharedSettings, String> {
        let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
        changed(&SharedSettings::default(), &changes).map_err(|f| f.message)
    }

    #[test]
    fn changes_are_parsed_and_validated() {
        let new = set(&["i_am_alive_period=30s", "num_votes_for_death_declaration=3"]).unwrap();
        assert_eq!(
            (new.i_am_alive_period, new.num_votes_for_death_declaration),
            (Duration::from_secs(30), 3)
        );
        for (bad, why) in [
            ("i_am_alive_period", "name=value"),
            ("colour=red", "not a shared setting"),
            ("i_am_alive_period=soon", "durations"),
            ("num_votes_for_death_declaration=many", "whole number"),
            ("num_votes_for_death_declaration=0", "1 to 10"),
            (
                "failure_window=1h",
                "`failure_window` is 3600s, but must be 300ms to 600s",
            ),
            ("failure_window=200ms", "failure_window"),
            ("probe_period=1s", "not a shared setting"),
            ("probe_timeout=1s", "not a shared setting"),
            ("death_vote_expiration=1s", "death_vote_expiration"),
        ] {
            let error = set(&[bad]).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn a_change_is_judged_by_what_the_cluster_has() {
        let set = |old: &SharedSettings, changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(|c| (*c).to_owned()).collect();
            changed(old, &changes).map_err(|f| f.message)
        };
        let wide = &["failure_window=90s"];
        let error = set(&SharedSettings::default(), wide).unwrap_err();
        let both = "`membership settings set failure_window=90s death_vote_expiration=…`";
        assert!(error.contains(both), "{error}");
        let both = &["failure_window=90s", "death_vote_expiration=5min"];
        let new = set(&SharedSettings::default(), both).unwrap();
        assert!(set(&new, &["failure_window=2min"]).is_ok());
        // What is out of range already, because somebody changed it by hand, forbids nothing else.
        let mut odd = SharedSettings::default();
        odd.num_missed_i_am_alive_limit = 1000;
        let new = set(&odd, &["i_am_alive_period=5s"]).unwrap();
        assert_eq!(new.num_missed_i_am_alive_limit, 1000);
        assert!(set(&odd, &["num_missed_i_am_alive_limit=1000"]).is_err());
    }

    #[test]
    fn every_failure_window_in_range_is_valid() {
        for ms in [300, 900, 1_500, 4_500, 15_000, 180_000, 600_000] {
            let mut settings = SharedSettings::default();
            settings.failure_window = Duration::from_millis(ms);
            settings.death_vote_expiration = Duration::from_secs(2400);
            validate(&settings).unwrap_or_else(|e| panic!("{ms}: {e}"));
        }
    }

    #[test]
    fn the_settings_of_every_preset_are_valid() {
        for preset in [Preset::Local, Preset::Lan, Preset::Wan] {
            validate(&Config::preset(preset).shared())
                .unwrap_or_else(|e| panic!("{preset:?}: {e}"));
        }
        let new = set(&["failure_window=45s", "i_am_alive_period=500ms"]).unwrap();
        assert_eq!(new.failure_window, Duration::from_secs(45));
    }
}
