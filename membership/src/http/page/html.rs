//! The page as it is without a script: a complete table. The script takes it over.

use std::fmt::{self, Write as _};

use form_urlencoded::byte_serialize;
use membership_core::{MembershipEntry, SiloStatus};

use super::Page;
use super::panels::{pairs, settings, suspicions, table, timeline};
use super::picture::Picture;
use super::source::Source;
use super::words::explain;
use crate::words::{Concern, ago, ending, misleads, suspected};

/// Text of others: it means nothing in HTML.
pub(super) struct Esc<T>(pub(super) T);

impl<T: fmt::Display> fmt::Display for Esc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.to_string().chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c if misleads(c) => f.write_str("\u{fffd}")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A part of a path or of a query.
fn encoded(text: &str) -> String {
    // A space is `+` in a query alone.
    byte_serialize(text.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

pub(super) fn url_of(silo: &str, cluster: &str) -> String {
    format!("/silo/{}?cluster={}", encoded(silo), encoded(cluster))
}

/// A shape beside each word, for people who do not see the colour.
const fn shape(status: SiloStatus) -> &'static str {
    match status {
        SiloStatus::Active => "●",
        SiloStatus::Dead => "✕",
        SiloStatus::ShuttingDown | SiloStatus::Stopping => "◑",
        _ => "◔",
    }
}

fn head(title: &str, script: bool) -> String {
    let script = match script {
        true => {
            "<script type=\"module\" src=\"/page/page.js\"></script>\
             <noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>"
        }
        false => "",
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{}</title>\
         <link rel=\"icon\" type=\"image/svg+xml\" href=\"/page/icon.svg\">\
         <link rel=\"stylesheet\" href=\"/page/page.css\">{script}</head>\n",
        Esc(title)
    )
}

/// The page of a cluster.
pub(super) fn page(page: &Page, source: &Source) -> String {
    let cluster = source.cluster.to_string();
    let picture = source.picture();
    let mut out = head(&format!("{cluster} · membership"), true);
    let _ = write!(
        out,
        "<body data-cluster=\"{}\"><a class=\"skip\" href=\"#silos\">Skip to the silos</a>\n\
         <header><div class=\"title\"><h1>{}</h1><p class=\"where\">{}</p></div>\
         <p id=\"summary\">{}</p><p id=\"live\" role=\"status\">{}</p>{}</header>\n<main>\n",
        Esc(&cluster),
        Esc(&cluster),
        Esc(origin(source)),
        Esc(picture.as_ref().map_or_else(String::new, Picture::summary)),
        Esc(state(source)),
        clusters(page, source),
    );
    let _ = write!(
        out,
        "<section id=\"attention\" aria-labelledby=\"h-attention\"><h2 id=\"h-attention\">Needs a person</h2><div class=\"body\">{}</div></section>\n\
         <div class=\"panels top\"><section id=\"zones\" aria-labelledby=\"h-zones\"><h2 id=\"h-zones\">Zones</h2>{}</section>\n\
         <section id=\"suspicions\" aria-labelledby=\"h-suspicions\"><h2 id=\"h-suspicions\">Suspicions and reach</h2><div class=\"body\">{}</div></section></div>\n",
        attention(source, picture.as_ref(), &cluster),
        zones(picture.as_ref()),
        suspicions(source, picture.as_ref(), &cluster),
    );
    out.push_str(include_str!("silos.html"));
    if source.me.is_some() {
        out = out.replacen(
            "<table id=\"rows\">",
            "<table id=\"rows\" class=\"no-beats\">",
            1,
        );
    }
    let rows = picture.as_ref().map(|picture| rows(picture, &cluster));
    let rows = rows.unwrap_or_default();
    out = out.replacen("<!-- rows -->", &rows, 1);
    let _ = write!(
        out,
        "<div class=\"panels\">\n\
         <section id=\"timeline\" aria-labelledby=\"h-timeline\"><h2 id=\"h-timeline\">Time line</h2><div class=\"body\">{}</div></section>\n\
         <section id=\"table\" aria-labelledby=\"h-table\"><h2 id=\"h-table\">Table</h2><div class=\"body\">{}</div></section>\n\
         <section id=\"settings\" aria-labelledby=\"h-settings\"><h2 id=\"h-settings\">Shared settings</h2><div class=\"body\">{}</div></section>\n\
         </div></main>\n",
        timeline(source, &cluster),
        table(source, picture.as_ref()),
        settings(picture.as_ref()),
    );
    out.push_str(include_str!("dialogs.html"));
    out.push_str("</body></html>\n");
    out
}

fn origin(source: &Source) -> String {
    match (source.me, source.store) {
        (Some(me), _) => format!("as {me} sees it"),
        (None, Some(store)) => format!("table in {store}"),
        (None, None) => "a table".to_owned(),
    }
}

fn state(source: &Source) -> String {
    let state = source.state();
    match (&state.picture, &state.table.error) {
        (_, Some(error)) => format!("The table: {error}"),
        (None, None) => "The table is being read.".to_owned(),
        (Some(picture), None) => format!("As of {}", picture.now),
    }
}

/// The other clusters that the page can show.
fn clusters(page: &Page, source: &Source) -> String {
    let mut out = String::from("<nav id=\"clusters\" aria-label=\"Clusters\">");
    if page.sources.len() > 1 {
        for other in &page.sources {
            let name = other.cluster.to_string();
            let is_shown = match other.cluster == source.cluster {
                true => " aria-current=\"page\"",
                false => "",
            };
            let link = encoded(&name);
            let _ = write!(
                out,
                "<a href=\"/?cluster={link}\"{is_shown}>{}</a> ",
                Esc(name)
            );
        }
    }
    if source.me.is_none() {
        out.push_str("<span class=\"quiet\">No store lists its clusters: each --cluster of the command adds one.</span>");
    }
    out + "</nav>"
}

fn attention(source: &Source, picture: Option<&Picture>, cluster: &str) -> String {
    let all = picture.map(|picture| source.attention(picture));
    let all = all.unwrap_or_default();
    if all.is_empty() {
        return "<p class=\"quiet\">Nothing.</p>".to_owned();
    }
    let mut out = String::from("<ul>");
    for one in all {
        let about = match one.kind {
            "ghost" | "stuck" => silo_link(&one.about, cluster),
            _ => Esc(&one.about).to_string(),
        };
        let (kind, text) = (one.kind, Esc(one.text));
        let _ = write!(out, "<li><strong>{kind}</strong> {about} {text}</li>");
    }
    out + "</ul>"
}

pub(super) fn silo_link(silo: &str, cluster: &str) -> String {
    let url = Esc(url_of(silo, cluster));
    // It may break before the epoch.
    let (place, epoch) = silo.split_at(silo.rfind('@').unwrap_or(silo.len()));
    format!(
        "<a class=\"why\" data-silo=\"{}\" href=\"{url}\">{}<wbr>{}</a>",
        Esc(silo),
        Esc(place),
        Esc(epoch)
    )
}

/// How many silos of each status are in each zone.
fn zones(picture: Option<&Picture>) -> String {
    let Some(picture) = picture else {
        return String::new();
    };
    let mut zones: std::collections::BTreeMap<&str, [usize; 6]> = Default::default();
    let mut used = [false; 6];
    for entry in picture.snapshot.rows.entries() {
        let at = SiloStatus::ALL.iter().position(|s| *s == entry.status);
        let at = at.unwrap_or_default();
        zones.entry(entry.info.zone.as_str()).or_default()[at] += 1;
        used[at] = true;
    }
    let statuses = || SiloStatus::ALL.iter().zip(used).filter(|(_, used)| *used);
    let mut out = String::from("<table><thead><tr><th scope=\"col\">Zone</th>");
    for (status, _) in statuses() {
        let shape = shape(*status);
        let _ = write!(
            out,
            "<th scope=\"col\"><span class=\"badge s-{status}\"><span aria-hidden=\"true\">{shape}</span> {status}</span></th>"
        );
    }
    out.push_str("</tr></thead><tbody>");
    for (zone, counts) in zones {
        let name = if zone.is_empty() { "(no zone)" } else { zone };
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", Esc(name));
        for (n, _) in counts.iter().zip(used).filter(|(_, used)| *used) {
            let _ = write!(out, "<td>{n}</td>");
        }
        out.push_str("</tr>");
    }
    out + "</tbody></table>"
}

fn rows(picture: &Picture, cluster: &str) -> String {
    let mut out = String::new();
    for (concern, entry) in picture.worst_first() {
        row(&mut out, concern, entry, picture, cluster);
    }
    out
}

fn row(
    out: &mut String,
    concern: Concern,
    entry: &MembershipEntry,
    picture: &Picture,
    cluster: &str,
) {
    let (silo, info, status) = (entry.address.to_string(), &entry.info, entry.status);
    let note = match status {
        SiloStatus::Dead => ending(entry, picture.now),
        _ if !entry.suspicions.is_empty() => format!("suspected by {}", suspected(entry)),
        _ => String::new(),
    };
    let heartbeats = picture.heartbeats.as_ref();
    let heartbeat = match heartbeats.map(|beats| beats.silos.get(&entry.address)) {
        Some(Some(beat)) => ago(beat.at, picture.now),
        Some(None) if status != SiloStatus::Dead => "none yet".to_owned(),
        _ => String::new(),
    };
    let stale = match concern {
        Concern::Stale => " (stale)",
        _ => "",
    };
    let _ = write!(
        out,
        "<tr data-silo=\"{}\" class=\"c-{}\"><th scope=\"row\">{}<span class=\"name\">{}</span></th>\
         <td class=\"place\"><span class=\"zone\">{}</span><span class=\"role\">{}</span></td>\
         <td class=\"status\"><span class=\"badge s-{status}\"><span aria-hidden=\"true\">{}</span> {status}</span><span class=\"note\">{}</span></td>\
         <td class=\"beat\">{heartbeat}{stale}</td><td class=\"start\">{}</td></tr>",
        Esc(&silo),
        concern.as_str(),
        silo_link(&silo, cluster),
        Esc(&info.silo_name),
        Esc(&info.zone),
        Esc(&info.role),
        shape(status),
        Esc(note),
        ago(entry.start_time, picture.now),
    );
}

/// What the dialog shows, for browsers without a script.
pub(super) fn about(source: &Source, entry: &MembershipEntry, picture: &Picture) -> String {
    let cluster = source.cluster.to_string();
    let (headline, lines) = explain(entry, picture);
    let mut out = head(&headline, false);
    let _ = write!(
        out,
        "<body><header><h1>{}</h1></header><main><section>{}<p><a href=\"/?cluster={}\">All silos</a></p></section></main></body></html>",
        Esc(&headline),
        pairs(lines.iter().map(|line| (line.label, &line.text))),
        encoded(&cluster)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_no_markup() {
        let hostile = "<script>alert('1')</script>\u{202e}\u{1b}[31m\"&";
        assert_eq!(
            Esc(hostile).to_string(),
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;\u{fffd}\u{fffd}[31m&quot;&amp;"
        );
        assert_eq!(
            url_of("a b/c?d", "x&y"),
            "/silo/a%20b%2Fc%3Fd?cluster=x%26y"
        );
    }
}
