//! The part of MongoDB's protocol that a few commands need: one document there, one document back.

use std::io::{self, Read, Write};

use super::wrong;

/// The kinds of values that are read or skipped.
const DOUBLE: u8 = 0x01;
const TEXT: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const LIST: u8 = 0x04;
const BINARY: u8 = 0x05;
const OBJECT_ID: u8 = 0x07;
const FLAG: u8 = 0x08;
const DATE: u8 = 0x09;
const NULL: u8 = 0x0a;
const INT32: u8 = 0x10;
const TIMESTAMP: u8 = 0x11;
const INT64: u8 = 0x12;

/// A message with one document, as both sides send them.
const MESSAGE: i32 = 2013;
/// No answer to these commands is longer.
const LONGEST: usize = 1 << 20;

/// A document: its elements, without the length in front and the zero at the end.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Document(Vec<u8>);

impl Document {
    pub(in super::super) fn new() -> Self {
        Self::default()
    }

    fn element(mut self, kind: u8, name: &str, value: &[u8]) -> Self {
        self.0.push(kind);
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        self.0.extend_from_slice(value);
        self
    }

    pub(in super::super) fn number(self, name: &str, value: i32) -> Self {
        self.element(INT32, name, &value.to_le_bytes())
    }

    pub(in super::super) fn text(self, name: &str, value: &str) -> Self {
        let mut bytes = length(value.len() + 1).to_le_bytes().to_vec();
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
        self.element(TEXT, name, &bytes)
    }

    pub(in super::super) fn document(self, name: &str, value: Self) -> Self {
        self.element(DOCUMENT, name, &value.bytes())
    }

    pub(in super::super) fn list(self, name: &str, values: impl IntoIterator<Item = Self>) -> Self {
        let list = values
            .into_iter()
            .enumerate()
            .fold(Self::new(), |list, (n, value)| {
                list.document(&n.to_string(), value)
            });
        self.element(LIST, name, &list.bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = length(self.0.len() + 5).to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.0);
        bytes.push(0);
        bytes
    }

    /// The kind and the bytes of a value by its name. None also if a value of an unknown kind comes
    /// before it.
    fn value(&self, wanted: &str) -> Option<(u8, &[u8])> {
        let mut rest = self.0.as_slice();
        while let Some((&kind, after)) = rest.split_first() {
            let end = after.iter().position(|byte| *byte == 0)?;
            let (name, value) = (after.get(..end)?, after.get(end + 1..)?);
            let counted = || usize::try_from(i32::from_le_bytes(*value.first_chunk()?)).ok();
            let size = match kind {
                FLAG => 1,
                NULL => 0,
                INT32 => 4,
                DOUBLE | DATE | TIMESTAMP | INT64 => 8,
                OBJECT_ID => 12,
                TEXT => counted()?.checked_add(4)?,
                BINARY => counted()?.checked_add(5)?,
                DOCUMENT | LIST => counted()?,
                _ => return None,
            };
            let (value, next) = value.split_at_checked(size)?;
            if name == wanted.as_bytes() {
                return Some((kind, value));
            }
            rest = next;
        }
        None
    }

    pub(in super::super) fn flag(&self, name: &str) -> Option<bool> {
        match self.value(name)? {
            (FLAG, [byte]) => Some(*byte != 0),
            _ => None,
        }
    }

    /// A whole number, of any numeric kind.
    pub(in super::super) fn whole(&self, name: &str) -> Option<i64> {
        match self.value(name)? {
            (INT32, value) => Some(i32::from_le_bytes(*value.first_chunk()?).into()),
            (INT64, value) => Some(i64::from_le_bytes(*value.first_chunk()?)),
            (DOUBLE, value) => {
                let value = f64::from_le_bytes(*value.first_chunk()?);
                (value.fract() == 0.0 && value.abs() < 1e15).then_some(value as i64)
            }
            _ => None,
        }
    }

    /// Whether the server did the command.
    pub(in super::super) fn is_ok(&self) -> bool {
        self.whole("ok") == Some(1)
    }
}

fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// Sends one command for this database. Returns the answer, which may be an error of the server.
pub(in super::super) fn call(
    mut stream: impl Read + Write,
    database: &str,
    command: Document,
) -> io::Result<Document> {
    let body = command.text("$db", database).bytes();
    let mut message = length(body.len() + 21).to_le_bytes().to_vec();
    for number in [1, 0, MESSAGE, 0] {
        message.extend(i32::to_le_bytes(number));
    }
    message.push(0);
    message.extend_from_slice(&body);
    stream.write_all(&message)?;

    let mut head = [0; 21];
    stream.read_exact(&mut head)?;
    let size =
        usize::try_from(i32::from_le_bytes([head[0], head[1], head[2], head[3]])).unwrap_or(0);
    let kind = i32::from_le_bytes([head[12], head[13], head[14], head[15]]);
    if kind != MESSAGE || head[20] != 0 || !(26..LONGEST).contains(&size) {
        return Err(wrong("an answer that does not follow the protocol"));
    }
    let mut body = vec![0; size - 21];
    stream.read_exact(&mut body)?;
    let inner = body.get(4..body.len() - 1).unwrap_or_default();
    Ok(Document(inner.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::Document;

    #[test]
    fn values_are_found_by_their_names() {
        let inner = Document::new().text("host", "a").number("_id", 3);
        let document = Document::new()
            .list("members", [inner.clone()])
            .document("one", inner)
            .text("t", "ok")
            .number("ok", 1);
        assert_eq!(
            (
                document.whole("ok"),
                document.flag("ok"),
                document.whole("host")
            ),
            (Some(1), None, None)
        );
        assert!(document.is_ok() && !Document::new().is_ok());
        let whole = document.bytes();
        assert_eq!(
            usize::try_from(u32::from_le_bytes([whole[0], whole[1], whole[2], whole[3]])).unwrap(),
            whole.len()
        );
    }
}
