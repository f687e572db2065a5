//! The texts that are sent. Whatever stands in them as a value is a hexadecimal literal or a number of ours.

use std::fmt::Write as _;

use membership_core::{ClusterName, VersionToken};

/// The length of the column `cluster`, in characters. With `silo` it makes a key of 2,848 bytes; InnoDB takes 3,072.
pub(super) const CLUSTER_CHARS: usize = 512;
/// The length of the column `silo`, in characters.
pub(super) const SILO_CHARS: usize = 200;

/// Bytes as pairs of hexadecimal digits.
pub(super) fn hex(bytes: &[u8], into: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    into.reserve(bytes.len() * 2);
    for byte in bytes {
        into.push(char::from(DIGITS[usize::from(byte >> 4)]));
        into.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// A text as a literal. Hexadecimal, because what a quote or a backslash means depends on `sql_mode` and on the character set of the
/// connection, and a proxy may have changed either.
pub(super) fn text(value: &str) -> String {
    let mut out = String::with_capacity(value.len() * 2 + 12);
    out.push_str("_utf8mb4 x'");
    hex(value.as_bytes(), &mut out);
    out.push('\'');
    out
}

/// The value of the column `cluster`. Names whose key is longer than the column (only names of many characters beyond ASCII are) stand
/// there by their hash; no key begins with `~~`.
pub(super) fn cluster(name: &ClusterName) -> String {
    let key = name.store_key();
    if key.len() <= CLUSTER_CHARS {
        text(&key)
    } else {
        format!("CONCAT('~~', SHA2({}, 512))", text(&key))
    }
}

/// A token as it stands beside the version row, so that the server can tell whether a reader needs the rows.
pub(super) fn token(token: &VersionToken) -> String {
    format!(
        "{}/{}/{}",
        token.table_id(),
        token.version(),
        token.commit()
    )
}

/// One statement reads the whole table, and so from one moment. Its rows are
/// `kind, silo, body, number, at, read_only`; the kinds are those of [`super::read`].
///
/// Without rows where the version row still carries `known`.
pub(super) fn read(cluster: &str, known: Option<&VersionToken>, heartbeats: bool) -> String {
    let mut sql = format!(
        "SELECT 0 AS kind, NULL AS silo, v.body AS body, v.deleting AS number, NULL AS at, @@global.read_only AS read_only \
         FROM membership_version v WHERE v.cluster = {cluster} \
         UNION ALL SELECT 1, s.silo, s.body, NULL, NULL, NULL FROM membership_silo s WHERE s.cluster = {cluster}"
    );
    if let Some(known) = known {
        let known = text(&token(known));
        let _ = write!(
            sql,
            " AND NOT EXISTS (SELECT 1 FROM membership_version k WHERE k.cluster = {cluster} AND k.deleting = 0 AND k.token = {known})"
        );
    }
    if heartbeats {
        // A heartbeat without a row is an orphan, and is not shown (clause T8).
        let _ = write!(
            sql,
            " UNION ALL SELECT 2, h.silo, NULL, h.counter, h.at, NULL FROM membership_heartbeat h \
             JOIN membership_silo r ON r.cluster = h.cluster AND r.silo = h.silo WHERE h.cluster = {cluster} \
             UNION ALL SELECT 3, NULL, c.text, NULL, NULL, NULL FROM membership_cell c WHERE c.cluster = {cluster}"
        );
    }
    sql
}

/// The same of one row.
pub(super) fn read_row(cluster: &str, silo: &str) -> String {
    format!(
        "SELECT 0 AS kind, NULL AS silo, v.body AS body, v.deleting AS number, NULL AS at, @@global.read_only AS read_only \
         FROM membership_version v WHERE v.cluster = {cluster} \
         UNION ALL SELECT 1, s.silo, s.body, NULL, NULL, NULL FROM membership_silo s WHERE s.cluster = {cluster} AND s.silo = {silo} \
         UNION ALL SELECT 2, h.silo, NULL, h.counter, h.at, NULL FROM membership_heartbeat h \
         WHERE h.cluster = {cluster} AND h.silo = {silo}"
    )
}

/// The version row, and some row of the cluster.
pub(super) fn look(cluster: &str) -> String {
    format!(
        "SELECT 0 AS kind, NULL AS silo, v.body AS body, v.deleting AS number, NULL AS at, @@global.read_only AS read_only \
         FROM membership_version v WHERE v.cluster = {cluster} \
         UNION ALL (SELECT 1, s.silo, s.body, NULL, NULL, NULL FROM membership_silo s WHERE s.cluster = {cluster} LIMIT 1)"
    )
}

/// The next transaction locks the rows that it touches and not the gaps between them, whatever others insert there.
pub(super) const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Makes everything that a read before it has seen survive a crash.
///
/// InnoDB shows a commit to others before it has written it to its log, unless there is a binary log: who reads in between would see
/// what a crash takes back, and a version or a heartbeat would fall. A commit of the reader's own writes the log up to there. Nothing is
/// written where the reader learns nothing: the version row still carries `known`.
pub(super) fn settle(cluster: &str, known: Option<&VersionToken>) -> String {
    let news = known.map_or_else(String::new, |known| {
        format!(" WHERE NOT EXISTS (SELECT 1 FROM membership_version k WHERE k.cluster = {cluster} AND k.token = {})", text(&token(known)))
    });
    format!(
        "{READ_COMMITTED}; INSERT INTO membership_meta (name, value) SELECT 'settled', UUID() FROM DUAL{news} \
         ON DUPLICATE KEY UPDATE membership_meta.value = UUID()"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_hexadecimal() {
        assert_eq!(text(""), "_utf8mb4 x''");
        assert_eq!(text("a'\\"), "_utf8mb4 x'61275c'");
        assert_eq!(text("ü"), "_utf8mb4 x'c3bc'");
    }

    #[test]
    fn long_names_fit_the_column() {
        let long = ClusterName::new("s", "ж".repeat(100)).unwrap();
        assert!(long.store_key().len() > CLUSTER_CHARS);
        assert!(cluster(&long).starts_with("CONCAT('~~', SHA2(_utf8mb4 x'"));
    }
}
