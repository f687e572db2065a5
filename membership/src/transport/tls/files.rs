//! Files with secrets: why one cannot be read, and who else may read it.
//!
//! Nothing here shows what is in a file, nor a path that may be the secret itself.

use std::io;
use std::path::Path;

/// What to do about a file that cannot be read.
pub(crate) fn unread(error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::IsADirectory => "name a file in it",
        io::ErrorKind::PermissionDenied => "give it to the user as whom the silo runs (`chown`)",
        _ => return error.to_string(),
    };
    format!("{error}: {advice}")
}

/// The path for an error; none if it leads nowhere and is no path by its look, because somebody may
/// have written the secret where its file belongs.
pub(crate) fn shown(path: &Path) -> Option<String> {
    let folder = path.parent();
    let is_path = path.is_absolute()
        || path.exists()
        || folder.is_some_and(|folder| !folder.as_os_str().is_empty() && folder.is_dir());
    is_path.then(|| path.display().to_string())
}

/// Warns if others than the owner may read or change a file with a secret.
#[cfg(unix)]
pub(crate) fn warn_of_mode(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    const OF_OTHERS: u32 = 0o066;
    let Ok(metadata) = path.metadata() else {
        return;
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OF_OTHERS != 0 {
        let file = path.display();
        tracing::warn!(
            %file,
            mode = format!("{mode:04o}"),
            "others may read or change a file with a secret: `chmod 600 {file}`"
        );
    }
}

/// Modes are of Unix.
#[cfg(not(unix))]
pub(crate) const fn warn_of_mode(_: &Path) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_is_not_shown() {
        let (hex, base64) = ("0123456789abcdef".repeat(4), "abcd/efgh+ijkl/mnop=");
        for secret in [&hex, base64] {
            assert_eq!(shown(Path::new(secret)), None);
        }
        let folder = tempfile::tempdir().unwrap();
        for path in [
            "/etc/membership/secret",
            "src/no-such-file",
            "./no-such-file",
            "Cargo.toml",
            folder.path().to_str().unwrap(),
        ] {
            assert_eq!(shown(Path::new(path)).as_deref(), Some(path));
        }
    }
}
