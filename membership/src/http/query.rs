//! The query of a request: each name once, and none that the path does not know.

use std::time::Duration;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::Uri;
use membership_core::WallTime;

use super::answer::Problem;

/// What a path names.
pub(super) fn named(path: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let wrong = |_| Problem::bad_request("the path must be UTF-8, in escapes of URLs");
    path.map(|Path(name)| name).map_err(wrong)
}

pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn of(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        let query = uri.query().unwrap_or_default();
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if !known.contains(&name.as_ref()) {
                return Err(Problem::bad_request(match known {
                    [] => "this path takes no query".to_owned(),
                    known => format!("the query may have {}", known.join(", ")),
                }));
            }
            if pairs.iter().any(|(had, _)| *had == name) {
                return Err(Problem::bad_request(format!("give `{name}` once")));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(pairs))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let wrong = |_| Problem::bad_request(format!("`{name}` must be a whole number"));
        self.get(name).map(|v| v.parse().map_err(wrong)).transpose()
    }

    /// A duration: `500ms`, `30s`, `2min`, `3h`, or seconds without a unit.
    pub(super) fn duration(&self, name: &str) -> Result<Option<Duration>, Problem> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        duration(text).map(Some).ok_or_else(|| {
            Problem::bad_request(format!("`{name}` must be a duration such as 500ms or 30s"))
        })
    }

    /// A time: `2026-11-21T01:02:03Z`, or how long ago.
    pub(super) fn time(&self, name: &str, now: WallTime) -> Result<Option<WallTime>, Problem> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        let ago = duration(text).map(|ago| now.minus(ago));
        ago.or_else(|| time(text)).map(Some).ok_or_else(|| {
            Problem::bad_request(format!(
                "`{name}` must be a duration such as 2h, or a UTC time such as 2026-11-21T01:02:03Z"
            ))
        })
    }
}

/// With milliseconds or without.
fn time(text: &str) -> Option<WallTime> {
    let whole = text.strip_suffix('Z').map(|t| format!("{t}.000Z"));
    text.parse().ok().or_else(|| whole?.parse().ok())
}

fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let number: u64 = number.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.checked_mul(millis)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        for (text, millis) in [("0", 0), ("30", 30_000), ("500ms", 500), ("2h", 7_200_000)] {
            assert_eq!(
                duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in [
            "",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "1y",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        let of = |text: &str| Query::of(&text.parse().unwrap(), &["wait", "timeout"]);
        assert_eq!(of("/?wait=7").unwrap().number("wait").unwrap(), Some(7));
        assert!(of("/?wiat=7").is_err() && of("/?wait=7&wait=8").is_err());
        assert!(of("/?wait=-1").unwrap().number("wait").is_err());
        let now = WallTime::from_millis(1_763_686_923_000);
        for text in ["2025-11-21T01:02:03Z", "2025-11-21T01:02:03.000Z"] {
            let uri = format!("/?wait={text}");
            assert_eq!(
                of(&uri).unwrap().time("wait", WallTime::default()).unwrap(),
                Some(now)
            );
        }
    }
}
