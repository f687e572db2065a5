//! The statements. Each value in them is a hexadecimal literal or a number of ours.

use std::fmt::Write as _;

use membership_core::VersionToken;

/// Bytes as pairs of hexadecimal digits.
pub(super) fn hex(bytes: &[u8], into: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    into.reserve(bytes.len() * 2);
    for byte in bytes {
        into.push(char::from(DIGITS[usize::from(byte >> 4)]));
        into.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// A text as a literal, in hexadecimal digits: the meaning of a quote or a backslash depends on
/// `sql_mode` and on the character set of the connection, and a proxy may change both.
pub(super) fn text(value: &str) -> String {
    let mut out = String::with_capacity(value.len() * 2 + 12);
    out.push_str("_utf8mb4 x'");
    hex(value.as_bytes(), &mut out);
    out.push('\'');
    out
}

/// A token as it is stored beside the version row, so that the server knows whether a reader needs
/// the rows.
pub(super) fn token(token: &VersionToken) -> String {
    format!(
        "{}/{}/{}",
        token.table_id(),
        token.version(),
        token.commit()
    )
}

/// The version row, the first part of every read. The rows of a read are
/// `kind, silo, body, number, at, read_only`; the kinds are those of [`super::codec`].
fn version(cluster: &str) -> String {
    format!(
        "SELECT 0 AS kind, NULL AS silo, v.body AS body, v.deleting AS number, NULL AS at, @@global.read_only AS read_only \
         FROM membership_version v WHERE v.cluster = {cluster}"
    )
}

/// The version row, locked.
pub(super) fn lock_version(cluster: &str) -> String {
    format!(
        "SELECT 0, NULL, body, deleting, NULL, @@global.read_only FROM membership_version WHERE cluster = {cluster} FOR UPDATE"
    )
}

/// The whole table, in one statement and so from one moment; without rows if the version row still
/// has the token `known`.
pub(super) fn read(cluster: &str, known: Option<&VersionToken>, heartbeats: bool) -> String {
    let mut sql = format!(
        "{} UNION ALL SELECT 1, s.silo, s.body, NULL, NULL, NULL FROM membership_silo s WHERE s.cluster = {cluster}",
        version(cluster)
    );
    if let Some(known) = known {
        let known = text(&token(known));
        let _ = write!(
            sql,
            " AND NOT EXISTS (SELECT 1 FROM membership_version k WHERE k.cluster = {cluster} AND k.deleting = 0 AND k.token = {known})"
        );
    }
    if heartbeats {
        // Whoever knows nothing is also told of those without a row (clause T8).
        let join = known.map_or("LEFT JOIN", |_| "JOIN");
        let _ = write!(
            sql,
            " UNION ALL SELECT IF(r.silo IS NULL, 4, 2), h.silo, NULL, h.counter, h.at, NULL FROM membership_heartbeat h \
             {join} membership_silo r ON r.cluster = h.cluster AND r.silo = h.silo WHERE h.cluster = {cluster} \
             UNION ALL SELECT 3, NULL, c.text, NULL, NULL, NULL FROM membership_cell c WHERE c.cluster = {cluster}"
        );
    }
    sql
}

/// The version row, and one row with its heartbeat.
pub(super) fn read_row(cluster: &str, silo: &str) -> String {
    format!(
        "{} UNION ALL SELECT 1, s.silo, s.body, NULL, NULL, NULL FROM membership_silo s WHERE s.cluster = {cluster} AND s.silo = {silo} \
         UNION ALL SELECT 2, h.silo, NULL, h.counter, h.at, NULL FROM membership_heartbeat h \
         WHERE h.cluster = {cluster} AND h.silo = {silo}",
        version(cluster)
    )
}

/// The version row, and any row of the cluster.
pub(super) fn probe(cluster: &str) -> String {
    format!(
        "{} UNION ALL (SELECT 1, s.silo, s.body, NULL, NULL, NULL FROM membership_silo s WHERE s.cluster = {cluster} LIMIT 1)",
        version(cluster)
    )
}

/// The next transaction locks the rows that it touches, and not the gaps between them.
pub(super) const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Makes everything that the read before it has seen survive a crash.
///
/// Without a binary log, InnoDB shows a commit to others before it has written it to its log: a
/// reader in between would see a commit that a crash undoes, and a version or a heartbeat would
/// decrease. A commit of the reader writes the log up to there. Nothing is written if the version
/// row still has the token `known`.
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
}
