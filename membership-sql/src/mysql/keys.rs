//! Keys of rows as the columns `cluster` and `silo` hold them.

use membership_core::ClusterName;

use super::sql::text;

/// The length of the column `cluster`, in characters. With `silo` the key has 2,848 bytes; InnoDB
/// allows 3,072.
pub(super) const CLUSTER_CHARS: usize = 512;
/// The length of the column `silo`, in characters.
pub(super) const SILO_CHARS: usize = 200;

/// The value of the column `cluster`. A key that is longer than the column (only of names with many
/// characters beyond ASCII) is replaced by its hash; no key starts with `~~`.
pub(super) fn cluster(name: &ClusterName) -> String {
    let key = name.store_key();
    if key.len() <= CLUSTER_CHARS {
        text(&key)
    } else {
        format!("CONCAT('~~', SHA2({}, 512))", text(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_fit_the_column() {
        let long = ClusterName::new("s", "ж".repeat(100)).unwrap();
        assert!(long.store_key().len() > CLUSTER_CHARS);
        assert!(cluster(&long).starts_with("CONCAT('~~', SHA2(_utf8mb4 x'"));
    }
}
