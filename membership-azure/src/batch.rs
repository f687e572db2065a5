//! Entity group transactions as HTTP carries them: `multipart/mixed` in both directions.
//!
//! The writer uses the plainest form, which every server accepts: absolute URLs, no blanks in
//! header values, a body of one line of ASCII. The reader never guesses: a transaction happened
//! only if its answer holds one complete success for each operation and a proper end. An answer
//! that is neither that nor one complete refusal is unclear (clauses T2, T5).

use serde_json::{Map, Value};

/// How many operations the service takes in one transaction.
pub(crate) const MAX_STEPS: usize = 100;
/// How many bytes it takes in one request.
pub(crate) const MAX_BYTES: usize = 4 << 20;

/// The properties of an entity, without its keys.
pub(crate) type Properties = Map<String, Value>;

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// The row key of the entity.
    pub(crate) row_key: String,
    pub(crate) action: Action,
}

/// What an operation does to the entity.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// It must not exist.
    Insert(Properties),
    /// It must exist, with any ETag; its other properties are removed.
    Replace(Properties),
    /// It must exist, with that ETag (`*`: any); its other properties stay.
    Merge(Properties, String),
    /// It may exist or not.
    InsertOrMerge(Properties),
    /// It must exist, with that ETag (`*`: any).
    Delete(String),
}

/// Where the entities are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// URL of the table: `https://account.table.core.windows.net/table`.
    pub(crate) table: &'a str,
    pub(crate) partition: &'a str,
}

/// The content type and the body of a request.
pub(crate) fn write(target: Target<'_>, steps: &[Step], nonce: u64) -> (String, String) {
    let (batch, changes) = (
        format!("batch_{nonce:016x}"),
        format!("changeset_{nonce:016x}"),
    );
    let mut out = format!("--{batch}\r\nContent-Type: multipart/mixed; boundary={changes}\r\n\r\n");
    for step in steps {
        out.push_str("--");
        out.push_str(&changes);
        out.push_str(
            "\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n",
        );
        let (method, properties, if_match) = match &step.action {
            Action::Insert(properties) => ("POST", Some(properties), None),
            Action::Replace(properties) => ("PUT", Some(properties), Some("*")),
            Action::Merge(properties, etag) => ("PATCH", Some(properties), Some(etag.as_str())),
            Action::InsertOrMerge(properties) => ("PATCH", Some(properties), None),
            Action::Delete(etag) => ("DELETE", None, Some(etag.as_str())),
        };
        let inserts = method == "POST";
        let of_entity = if inserts {
            String::new()
        } else {
            keys(target.partition, &step.row_key)
        };
        out.push_str(&format!(
            "{method} {}{of_entity} HTTP/1.1\r\n",
            target.table
        ));
        out.push_str(
            "Accept: application/json;odata=minimalmetadata\r\nDataServiceVersion: 3.0\r\n",
        );
        if inserts {
            out.push_str("Prefer: return-no-content\r\n");
        }
        if let Some(etag) = if_match {
            out.push_str(&format!("If-Match: {etag}\r\n"));
        }
        match properties {
            None => out.push_str("\r\n"),
            Some(properties) => {
                out.push_str("Content-Type: application/json\r\n\r\n");
                out.push_str(&entity(target.partition, &step.row_key, properties));
                out.push_str("\r\n");
            }
        }
    }
    out.push_str(&format!("--{changes}--\r\n--{batch}--\r\n"));
    (format!("multipart/mixed; boundary={batch}"), out)
}

/// `(PartitionKey='…',RowKey='…')`, as in URLs.
pub(crate) fn keys(partition: &str, row_key: &str) -> String {
    format!(
        "(PartitionKey='{}',RowKey='{}')",
        in_url(&quoted(partition)),
        in_url(&quoted(row_key))
    )
}

/// Doubles the quotes within a quoted text, for URLs and filters.
pub(crate) fn quoted(text: &str) -> String {
    text.replace('\'', "''")
}

/// Percent-encodes everything but letters, digits and `-_.~`.
pub(crate) fn in_url(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// An entity as one line of ASCII: some servers end a line at any Unicode line end.
pub(crate) fn entity(partition: &str, row_key: &str, properties: &Properties) -> String {
    let mut all = Properties::new();
    all.insert("PartitionKey".to_owned(), partition.into());
    all.insert("RowKey".to_owned(), row_key.into());
    all.extend(
        properties
            .iter()
            .map(|(name, value)| (name.clone(), value.clone())),
    );
    let text = Value::Object(all).to_string();
    if text.is_ascii() {
        return text;
    }
    let mut out = String::with_capacity(text.len() * 2);
    let mut units = [0; 2];
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            // Outside of strings JSON is ASCII.
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

/// The outcome of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It happened. The new ETag of each entity, where there is one.
    Done(Vec<Option<String>>),
    /// It did not happen, because of this.
    Refused(Refusal),
    /// The answer does not show the outcome, for this reason.
    Unclear(&'static str),
}

/// An error of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The status of HTTP.
    pub(crate) status: u16,
    /// The service's error code; empty if there is none.
    pub(crate) code: String,
    /// The index of the failed operation, if the service names it.
    pub(crate) step: Option<usize>,
    /// The first line of the service's explanation.
    pub(crate) message: String,
}

/// Reads the answer to a transaction with this many operations, whose status was 202.
pub(crate) fn read(content_type: &str, body: &[u8], steps: usize) -> Outcome {
    match answers(content_type, body) {
        Err(why) => Outcome::Unclear(why),
        Ok(answers) => match answers.as_slice() {
            // The answer has one failed operation for all of them.
            [one] if one.status >= 400 => match one.refusal() {
                Some(refusal) => Outcome::Refused(refusal),
                None => Outcome::Unclear("an operation failed, and the answer does not say how"),
            },
            all if all.len() == steps && all.iter().all(|one| (200..300).contains(&one.status)) => {
                Outcome::Done(
                    all.iter()
                        .map(|one| one.header("etag").map(str::to_owned))
                        .collect(),
                )
            }
            _ => Outcome::Unclear("the answer does not have one part for each operation"),
        },
    }
}

/// The answer to one operation.
struct Part<'a> {
    status: u16,
    headers: Vec<(&'a str, &'a str)>,
    body: &'a [u8],
}

impl<'a> Part<'a> {
    fn header(&self, name: &str) -> Option<&'a str> {
        header(&self.headers, name)
    }

    fn refusal(&self) -> Option<Refusal> {
        let refusal = explained(self.status, self.body);
        (!refusal.code.is_empty()).then_some(refusal)
    }
}

/// The service's explanation of an error: `{"odata.error":{"code":…,"message":{"value":"N:…"}}}`,
/// or the same in XML.
pub(crate) fn explained(status: u16, body: &[u8]) -> Refusal {
    let text = String::from_utf8_lossy(body);
    let mut refusal = Refusal {
        status,
        ..Refusal::default()
    };
    let message = if let Ok(json) = serde_json::from_str::<Value>(&text) {
        let error = json.get("odata.error").or_else(|| json.get("error"));
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let message = error.and_then(|error| error.get("message"));
        refusal.code = text(error.and_then(|error| error.get("code")));
        text(message.map(|message| message.get("value").unwrap_or(message)))
    } else {
        let tag = |name: &str| {
            Some(
                text.split_once(&format!("<{name}>"))?
                    .1
                    .split_once(&format!("</{name}>"))?
                    .0
                    .trim()
                    .to_owned(),
            )
        };
        refusal.code = tag("Code").unwrap_or_default();
        tag("Message").unwrap_or_default()
    };
    // A code is one word; anything else is the page of a proxy.
    if refusal.code.len() > 80 || !refusal.code.bytes().all(|b| b.is_ascii_alphanumeric()) {
        refusal.code.clear();
    }
    let message = message.lines().next().unwrap_or_default();
    let message = match message
        .split_once(':')
        .map(|(number, rest)| (number.parse(), rest))
    {
        Some((Ok(step), rest)) => {
            refusal.step = Some(step);
            rest
        }
        _ => message,
    };
    refusal.message = message
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    refusal
}

fn answers<'a>(content_type: &str, body: &'a [u8]) -> Result<Vec<Part<'a>>, &'static str> {
    let outer = boundary(content_type).ok_or("it is not the answer to a transaction")?;
    let whole = match parts(body, outer)?.as_slice() {
        [one] => *one,
        _ => return Err("it does not contain exactly one transaction"),
    };
    let (headers, body) = head(whole).ok_or("its part has no end of headers")?;
    let inner = header(&headers, "content-type")
        .and_then(boundary)
        .ok_or("its part is no transaction")?;
    parts(body, inner)?.into_iter().map(answer).collect()
}

fn answer(part: &[u8]) -> Result<Part<'_>, &'static str> {
    let (_, http) = head(part).ok_or("an operation's part has no end of headers")?;
    let (line, rest) = line(http).ok_or("an operation's answer has no end of line")?;
    let status = std::str::from_utf8(line)
        .ok()
        .and_then(|line| {
            line.strip_prefix("HTTP/1.")?
                .split(' ')
                .nth(1)?
                .parse::<u16>()
                .ok()
        })
        .filter(|status| (100..600).contains(status))
        .ok_or("an operation's answer has no status")?;
    let (headers, body) = head(rest).ok_or("an operation's answer has no end of headers")?;
    Ok(Part {
        status,
        headers,
        body,
    })
}

/// The boundary of a multipart type.
fn boundary(content_type: &str) -> Option<&str> {
    let (kind, rest) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/mixed") {
        return None;
    }
    let value = rest.split(';').map(str::trim).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("boundary")
            .then(|| value.trim().trim_matches('"'))
    })?;
    (!value.is_empty() && value.len() <= 200).then_some(value)
}

/// The parts between the boundaries. The closing boundary must exist.
fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<&'a [u8]>, &'static str> {
    let (mut found, mut begun, mut rest, mut at) = (Vec::new(), None, body, 0);
    while !rest.is_empty() {
        let (text, next) = line(rest).unwrap_or((rest, &[]));
        let mark = text
            .strip_prefix(b"--")
            .and_then(|text| text.strip_prefix(boundary.as_bytes()))
            .map(<[u8]>::trim_ascii_end);
        if let Some(after) = mark.filter(|after| after.is_empty() || *after == b"--") {
            if let Some(from) = begun.replace(body.len() - next.len()) {
                found.push(body.get(from..at).unwrap_or_default());
            }
            if !after.is_empty() {
                return Ok(found);
            }
        }
        at = body.len() - next.len();
        rest = next;
    }
    Err("it ends too early")
}

/// The first line without its end, and what follows it.
fn line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|b| *b == b'\n')?;
    let (line, rest) = (text.get(..end)?, text.get(end + 1..)?);
    Some((line.strip_suffix(b"\r").unwrap_or(line), rest))
}

type Head<'a> = (Vec<(&'a str, &'a str)>, &'a [u8]);

/// Headers up to the empty line, and what follows it.
fn head(mut text: &[u8]) -> Option<Head<'_>> {
    let mut headers = Vec::new();
    loop {
        let (line, rest) = line(text)?;
        text = rest;
        if line.is_empty() {
            return Some((headers, text));
        }
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        headers.push((name.trim(), value.trim()));
    }
}

fn header<'a>(headers: &[(&'a str, &'a str)], name: &str) -> Option<&'a str> {
    headers
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| *value)
}

#[cfg(test)]
mod tests;
