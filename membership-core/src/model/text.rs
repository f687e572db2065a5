//! Text of others as part of an error, which is one line of a log.

/// The longest text of another library that becomes part of an error, in characters.
pub(crate) const LONGEST: usize = 200;

/// The first `most` characters of a text, without those that end a line or control a terminal.
pub(crate) fn quoted(text: &str, most: usize) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().take(most).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use crate::encoding::{decode_entry, decode_version_row};
    use crate::{
        ClusterName, Heartbeat, Operation, SiloAddress, SiloStatus, TableError, TableErrorKind,
        TableId, WallTime,
    };

    fn assert_one_line(error: impl std::fmt::Display) {
        let text = error.to_string();
        assert!(
            text.len() < 1024 && !text.chars().any(char::is_control),
            "{text:?}"
        );
    }

    #[test]
    fn errors_are_one_line_whatever_they_are_about() {
        for text in ["a\nb\r\n/\u{1b}[31m", &"\u{1}☃".repeat(5000)] {
            assert_one_line(text.parse::<ClusterName>().unwrap_err());
            assert_one_line(ClusterName::new("a", text).unwrap_err());
            assert_one_line(text.parse::<SiloAddress>().unwrap_err());
            assert_one_line(text.parse::<SiloStatus>().unwrap_err());
            assert_one_line(text.parse::<TableId>().unwrap_err());
            assert_one_line(text.parse::<WallTime>().unwrap_err());
            assert_one_line(text.parse::<Heartbeat>().unwrap_err());
            let (kind, during) = (TableErrorKind::Busy, Operation::Read);
            let error = TableError::new(kind, during, "memory", "no\nanswer\u{1b}");
            assert_one_line(error.at("near:1\n"));

            let json = serde_json::to_string(text).unwrap();
            let row = format!("{{\"layout\":1,\"address\":{json}}}");
            assert_one_line(decode_entry("key", &row).unwrap_err());
            let row = format!("{{\"layout\":1,\"address\":\"10.0.0.1:1@1\",\"status\":{json}}}");
            assert_one_line(decode_entry("key", &row).unwrap_err());
            assert_one_line(decode_entry(text, "{}").unwrap_err());
            let row = format!("{{\"layout\":{json}}}");
            assert_one_line(decode_version_row(&row).unwrap_err());
            let row = format!("{{\"layout\":1,\"min_layout\":1,\"version\":{json}}}");
            assert_one_line(decode_version_row(&row).unwrap_err());
        }
    }
}
