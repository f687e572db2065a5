//! What stands around the table of silos, without a script.

use std::fmt::{self, Write as _};

use membership_core::{SiloStatus, Suspicion, SuspicionReason};

use super::html::{Esc, silo_link};
use super::picture::Picture;
use super::source::Source;
use crate::words::{ago, count};

pub(super) fn suspicions(source: &Source, picture: Option<&Picture>, cluster: &str) -> String {
    let mut out = String::new();
    let fresh = |picture: &Picture, vote: &Suspicion| {
        let age = picture.now.since(vote.at);
        vote.reason != SuspicionReason::Challenge && age <= picture.settings().death_vote_expiration
    };
    if let Some(picture) = picture {
        let entries = picture.snapshot.rows.entries();
        for entry in entries.filter(|e| e.status != SiloStatus::Dead) {
            for vote in entry.suspicions.iter().filter(|vote| fresh(picture, vote)) {
                let _ = write!(
                    out,
                    "<li>{} suspects {}, {}</li>",
                    Esc(vote.accuser),
                    silo_link(&entry.address.to_string(), cluster),
                    ago(vote.at, picture.now)
                );
            }
        }
    }
    let mut text = match out.is_empty() {
        true => "<p class=\"quiet\">Nobody suspects anybody.</p>".to_owned(),
        false => format!("<ul>{out}</ul>"),
    };
    match source.state().reach.as_ref() {
        None => text.push_str(
            "<p class=\"quiet\">Who does not reach whom is not known: the silos are not asked (--ask).</p>",
        ),
        Some(reach) if reach.answered == 0 => text.push_str(
            "<p class=\"quiet\">Who does not reach whom is not known: no silo answered.</p>",
        ),
        Some(reach) if source.me.is_some() && reach.partial.is_empty() => {
            text.push_str("<p class=\"quiet\">This silo reaches all that others reach.</p>");
        }
        Some(reach) if reach.partial.is_empty() => {
            let answered = count(reach.answered, "silo");
            let _ = write!(
                text,
                "<p class=\"quiet\">{answered} answered; each reaches all that others reach.</p>"
            );
        }
        Some(reach) => {
            text.push_str("<ul>");
            for (silo, unreached) in &reach.partial {
                let names: Vec<String> = unreached.iter().map(ToString::to_string).collect();
                let _ = write!(text, "<li>{silo} does not reach {}</li>", names.join(", "));
            }
            text.push_str("</ul>");
        }
    }
    text
}

pub(super) fn timeline(source: &Source, cluster: &str) -> String {
    let state = source.state();
    let mut out = String::from("<ol>");
    for one in state.timeline.newest().take(60) {
        let silo = one.silo.map(|silo| silo_link(&silo.to_string(), cluster));
        let about = if one.exact { "" } else { "≥ " };
        let _ = write!(
            out,
            "<li class=\"w-{}\"><time datetime=\"{at}\">{about}{at}</time> {} <span>{}</span> <span class=\"what\">{}</span></li>",
            one.what,
            silo.unwrap_or_default(),
            Esc(&one.name),
            Esc(&one.text),
            at = one.at,
        );
    }
    out + "</ol>"
}

pub(super) fn pairs<K: fmt::Display, V: fmt::Display>(
    of: impl IntoIterator<Item = (K, V)>,
) -> String {
    let mut out = String::from("<dl>");
    for (name, value) in of {
        let _ = write!(
            out,
            "<div><dt>{}</dt><dd>{}</dd></div>",
            Esc(name),
            Esc(value)
        );
    }
    out + "</dl>"
}

pub(super) fn table(source: &Source, picture: Option<&Picture>) -> String {
    let state = source.state();
    let health = &state.table;
    let mut all = vec![("state", health.state.to_owned())];
    if let Some(ms) = health.latency_ms.back().copied().or(health.mean_ms) {
        all.push(("latency", format!("{ms} ms")));
    }
    let conflicts = health.conflicts.map(|n| n.to_string());
    all.push((
        "conflicts",
        conflicts.unwrap_or_else(|| "not known to a reader".to_owned()),
    ));
    all.push(("outages seen", health.outages.len().to_string()));
    if let Some(picture) = picture {
        let row = &picture.snapshot.version_row;
        all.push(("version", row.version.to_string()));
        all.push(("table id", row.table_id.to_string()));
    }
    pairs(all)
}

pub(super) fn settings(picture: Option<&Picture>) -> String {
    let Some(picture) = picture else {
        return String::new();
    };
    let settings = serde_json::to_value(&picture.snapshot.version_row.settings);
    let settings = settings.unwrap_or_default();
    let all = settings.as_object().into_iter().flatten();
    pairs(all.map(|(name, value)| {
        let text = value.as_str().map(str::to_owned);
        (name, text.unwrap_or_else(|| value.to_string()))
    }))
}
