//! Columns of the driver's rows.

use mysql_async::{Row, Value};

/// A column as bytes; none if it is NULL.
fn bytes(row: &Row, column: usize) -> Option<&[u8]> {
    match row.as_ref(column) {
        Some(Value::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}

/// A column as text; bytes that are not UTF-8 are replaced.
pub(super) fn text(row: &Row, column: usize) -> Option<String> {
    bytes(row, column).map(|b| String::from_utf8_lossy(b).into_owned())
}

/// A column as a number; none if it is NULL or not a number.
pub(super) fn number(row: &Row, column: usize) -> Option<u64> {
    bytes(row, column)
        .and_then(|b| std::str::from_utf8(b).ok())
        .and_then(|t| t.parse().ok())
}
