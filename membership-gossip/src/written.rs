//! Settings as people write and read them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::downing::Strategy;

/// A duration as it is written in a file.
pub(crate) fn written(duration: Duration) -> String {
    humantime_serde::re::humantime::format_duration(duration).to_string()
}

/// A duration, or `never`: in TOML nothing else says that there is none.
pub(crate) fn or_never<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(d)?;
    let Some(text) = text.filter(|text| text != "never") else {
        return Ok(None);
    };
    let parsed = humantime_serde::re::humantime::parse_duration(&text);
    parsed.map(Some).map_err(|error| {
        let text = format!("`{text}` is neither a duration nor `never`: {error}");
        serde::de::Error::custom(text)
    })
}

/// A strategy: a table with its `name`, or the name alone where nothing else is needed.
pub(crate) fn strategy<'de, D: Deserializer<'de>>(d: D) -> Result<Strategy, D::Error> {
    struct Form;

    impl<'de> serde::de::Visitor<'de> for Form {
        type Value = Strategy;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the name of a strategy, or a table with its `name`")
        }

        fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Strategy, E> {
            let fields = BTreeMap::from([("name", name)]);
            Strategy::deserialize(serde::de::value::MapDeserializer::new(fields.into_iter()))
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Strategy, A::Error> {
            Strategy::deserialize(serde::de::value::MapAccessDeserializer::new(map))
        }
    }

    d.deserialize_any(Form)
}
