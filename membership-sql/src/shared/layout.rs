//! The tables, and the mark that distinguishes ours from others of the same names.
//!
//! A database may hold other tables, which are never read or changed. Only a table with one of our
//! names and without our mark is refused.

use membership_core::{Operation, TableError, TableErrorKind};

/// The layout of the tables that this build creates. A later layout that this build must not touch
/// raises `min_layout` in the meta table and in every version row.
pub(crate) const LAYOUT: u32 = 1;
/// The mark.
pub(crate) const PRODUCT: &str = "silo-membership";
/// The names of the tables after their prefix.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const TABLES: [&str; 5] = ["meta", "version", "silo", "heartbeat", "cell"];

/// The values of the marks, as a statement inserts them.
pub(crate) fn marks() -> String {
    format!("('product', '{PRODUCT}'), ('layout', '{LAYOUT}'), ('min_layout', '{LAYOUT}')")
}

/// Checks the marks of the table `meta`. `unnumbered` is the kind of the error without layout
/// numbers.
///
/// # Errors
/// `ForeignTable`, `NewerLayout`, `unnumbered`.
pub(crate) fn check_marks(
    store: &'static str,
    meta: &str,
    unnumbered: TableErrorKind,
    mark: impl Fn(&str) -> Option<String>,
) -> Result<(), TableError> {
    let fail = |kind, message| Err(TableError::new(kind, Operation::Connect, store, message));
    if mark("product").as_deref() != Some(PRODUCT) {
        let message = format!("{meta} does not hold the mark of this project: it is not our table");
        return fail(TableErrorKind::ForeignTable, message);
    }
    let number = |name| mark(name).and_then(|value| value.parse::<u32>().ok());
    match (number("layout"), number("min_layout")) {
        (Some(layout), Some(least)) if least > LAYOUT => {
            let message = format!(
                "the tables have layout {layout} and need a build that knows layout {least}; this one knows {LAYOUT}"
            );
            fail(TableErrorKind::NewerLayout, message)
        }
        (Some(_), Some(_)) => Ok(()),
        _ => fail(unnumbered, format!("{meta} has no layout numbers")),
    }
}
