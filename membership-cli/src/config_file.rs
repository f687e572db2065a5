//! A configuration file: TOML with the names of [`Config`] (of a member without a table: those of
//! its own), `preset` for the defaults, and a table `[security]`.

use std::io;
use std::path::Path;

use clap::ValueEnum;
use membership_core::{Config, ConfigError, Preset};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::exit::Failure;
use crate::security::SecurityTable;

/// The longest reason of a library that is shown: it may quote any part of the file.
const LONGEST: usize = 240;

/// Settings of older builds, and what replaces them.
const REMOVED: &[(&str, &str)] = &[
    (
        "probe_timeout",
        "set `failure_window`, from which the timeout of a probe follows, and `probe_period`",
    ),
    (
        "min_probe_timeout",
        "set `failure_window`; a probe waits for this window divided by \
         `num_missed_probes_limit` + 1 at least",
    ),
];

/// The presets as values of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PresetName {
    /// One machine, tests, demos
    Local,
    /// One data centre or region
    Lan,
    /// Several regions
    Wan,
}

impl PresetName {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Lan => "lan",
            Self::Wan => "wan",
        }
    }
}

impl From<PresetName> for Preset {
    fn from(name: PresetName) -> Self {
        match name {
            PresetName::Local => Self::Local,
            PresetName::Lan => Self::Lan,
            PresetName::Wan => Self::Wan,
        }
    }
}

/// A configuration with presets.
pub(crate) trait Configuration: Serialize + DeserializeOwned {
    type Preset: DeserializeOwned + Default;
    /// Settings of older builds, and what replaces them.
    const REMOVED: &[(&str, &str)];
    fn of(preset: Self::Preset) -> Self;
    fn check(&self) -> Result<(), ConfigError>;
}

impl Configuration for Config {
    type Preset = Preset;
    const REMOVED: &[(&str, &str)] = REMOVED;

    fn of(preset: Preset) -> Self {
        Self::preset(preset)
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.validate()
    }
}

#[cfg(feature = "gossip")]
impl Configuration for membership::gossip::Config {
    type Preset = membership::gossip::Preset;
    const REMOVED: &[(&str, &str)] = &[];

    fn of(preset: Self::Preset) -> Self {
        Self::preset(preset)
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.validate()
    }
}

/// The configuration from the command line and the file, validated.
pub(crate) fn load<C: Configuration>(
    preset: Option<C::Preset>,
    file: Option<&Path>,
) -> Result<(C, SecurityTable), Failure> {
    let (config, security) = match file {
        None => (C::of(preset.unwrap_or_default()), SecurityTable::default()),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| {
                Failure::usage(format!("--config {}: {}", path.display(), unread(&e)))
            })?;
            parse(&text, preset).map_err(|f| {
                Failure::usage(format!("--config {}: {}", path.display(), f.message))
            })?
        }
    };
    config
        .check()
        .map_err(|e| Failure::usage(format!("invalid configuration: {e}")))?;
    Ok((config, security))
}

/// Why a file cannot be read, and what to do.
fn unread(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "check the path, or leave the option out: it has no default",
        io::ErrorKind::IsADirectory => "name a file in it",
        io::ErrorKind::PermissionDenied => "let the user as whom the silo runs read it",
        io::ErrorKind::InvalidData => "write it as text in UTF-8 (PowerShell's `>` writes UTF-16)",
        _ => return error.to_string(),
    };
    format!("{error}: {advice}")
}

/// The content of a configuration file, with what it leaves out; not validated.
pub(crate) fn parse<C: Configuration>(
    text: &str,
    preset: Option<C::Preset>,
) -> Result<(C, SecurityTable), Failure> {
    let usage = |e: &dyn std::fmt::Display| {
        let line = e.to_string().trim().replace('\n', " ");
        Failure::usage(
            crate::text::clean(&line)
                .chars()
                .take(LONGEST)
                .collect::<String>(),
        )
    };
    let mut file: serde_json::Map<String, Value> =
        toml::from_str(text).map_err(|e| usage(&e.message()))?;
    let named = match file.remove("preset") {
        None => C::Preset::default(),
        Some(value) => serde_json::from_value(value).map_err(|e| usage(&format!("preset: {e}")))?,
    };
    let security = match file.remove("security") {
        None => SecurityTable::default(),
        Some(value) => {
            serde_json::from_value(value).map_err(|e| usage(&format!("[security]: {e}")))?
        }
    };
    for (name, instead) in C::REMOVED {
        if file.contains_key(*name) {
            return Err(usage(&format!(
                "`{name}` is no longer a setting: {instead}"
            )));
        }
    }
    // The command line has precedence over the file.
    let base = C::of(preset.unwrap_or(named));
    let mut merged = serde_json::to_value(base).unwrap_or_default();
    if let Some(fields) = merged.as_object_mut() {
        fields.extend(file);
    }
    let config = serde_json::from_value(merged).map_err(|e| {
        let text = e.to_string();
        let hint = match text.contains("duration") {
            true => " (durations are written like \"10s\" or \"500ms\")",
            false => "",
        };
        usage(&format!("{text}{hint}"))
    })?;
    Ok((config, security))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_changes_a_preset() {
        let (config, security): (Config, _) = parse(
            "preset = \"local\"\nnum_probed_silos = 5\ni_am_alive_period = \"3s\"\n",
            None,
        )
        .unwrap();
        assert_eq!(security, SecurityTable::default());
        assert_eq!(
            (config.num_probed_silos, config.i_am_alive_period),
            (5, Duration::from_secs(3))
        );
        assert_eq!(
            config.probe_period,
            Config::preset(Preset::Local).probe_period
        );
        let (config, _): (Config, _) = parse("preset = \"local\"", Some(Preset::Wan)).unwrap();
        assert_eq!(config, Config::preset(Preset::Wan));
    }

    #[test]
    fn probes_have_a_period_and_a_failure_window() {
        let text = "failure_window = \"9s\"\nprobe_period = \"2s\"";
        let (config, _): (Config, _) = parse(text, None).unwrap();
        assert_eq!(
            (
                config.failure_window,
                config.probe_period,
                config.probe_timeout()
            ),
            (
                Duration::from_secs(9),
                Duration::from_secs(2),
                Duration::from_secs(3)
            )
        );
        for (name, _) in REMOVED {
            let error = parse::<Config>(&format!("{name} = \"1s\""), None).unwrap_err();
            let error = error.message;
            assert!(
                error.contains(name) && error.contains("`failure_window`"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_invalid_file_is_refused_in_one_line() {
        for (text, why) in [
            ("colour = 1", "colour"),
            ("preset = \"mars\"", "preset"),
            ("[security]\nmode = \"hope\"", "[security]"),
            ("[security]\nsecret = 1", "[security]"),
            ("failure_window = 5", "durations"),
            ("=", ""),
            ("\"a\\nb\\u001b[31m\" = 1", "a"),
            (&format!("{} = 1", "a".repeat(5000)), "aaa"),
        ] {
            let error = parse::<Config>(text, None).unwrap_err().message;
            assert!(error.contains(why) && error.len() < 1000, "{error}");
            assert!(!error.chars().any(char::is_control), "{error}");
        }
    }
}
