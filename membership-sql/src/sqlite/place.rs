//! Whether a path may hold the table, and whether it still leads to the file that is open (clause T16).
//!
//! Files are only looked at by name, never opened here: closing any second descriptor of a file drops all locks that this process holds
//! on it, those of SQLite included.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use membership_core::{Operation, TableError, TableErrorKind};

use super::STORE;

/// Which file a path leads to, as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    file: u64,
}

impl Identity {
    #[cfg(unix)]
    fn of(meta: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            device: meta.dev(),
            file: meta.ino(),
        }
    }

    // Elsewhere an open file cannot be deleted or replaced, so that existing is enough.
    #[cfg(not(unix))]
    fn of(_: &Metadata) -> Self {
        Self { device: 0, file: 0 }
    }
}

/// The file at `path`; none when there is none.
///
/// # Errors
/// What the system says, other than "not found".
pub(super) fn identity(path: &Path) -> io::Result<Option<Identity>> {
    match std::fs::metadata(path) {
        Ok(meta) => Ok(Some(Identity::of(&meta))),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// The absolute path to use, if its directory exists and its file system has locks that work.
///
/// # Errors
/// `Configuration` or `PermissionDenied`.
pub(super) fn check(path: &Path, allow_network: bool) -> Result<PathBuf, TableError> {
    let fail = |kind, message: String| TableError::new(kind, Operation::Connect, STORE, message);
    let absolute = std::path::absolute(path).map_err(|e| {
        fail(
            TableErrorKind::Configuration,
            format!("{} is no path", path.display()),
        )
        .with_source(e)
    })?;
    let parent = absolute.parent().ok_or_else(|| {
        fail(
            TableErrorKind::Configuration,
            format!("{} is no file", path.display()),
        )
    })?;
    let directory = std::fs::canonicalize(parent).map_err(|e| {
        let (kind, advice) = match e.kind() {
            io::ErrorKind::PermissionDenied => {
                (TableErrorKind::PermissionDenied, "may not be entered")
            }
            _ => (
                TableErrorKind::Configuration,
                "does not exist: create it first",
            ),
        };
        fail(kind, format!("the directory {} {advice}", parent.display())).with_source(e)
    })?;
    if absolute.is_dir() {
        return Err(fail(
            TableErrorKind::Configuration,
            format!(
                "{} is a directory, and must be a file in one",
                absolute.display()
            ),
        ));
    }
    // A link to a file elsewhere counts where the file is.
    let real = std::fs::canonicalize(&absolute).unwrap_or(directory);
    if !allow_network && let Some(kind) = file_system(&real).filter(|kind| is_network(kind)) {
        return Err(fail(
            TableErrorKind::Configuration,
            format!(
                "{} is on a network file system ({kind}), whose locks do not keep the table consistent: use a local disk, or a \
                     networked store, or set allow_network_file_system if all processes run on one machine",
                absolute.display()
            ),
        ));
    }
    Ok(absolute)
}

/// File systems whose locks or shared memory do not hold between machines (or, for the virtual ones, between guests).
fn is_network(kind: &str) -> bool {
    const NAMES: [&str; 22] = [
        "nfs",
        "nfs4",
        "cifs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "ncpfs",
        "9p",
        "drvfs",
        "afs",
        "ceph",
        "coda",
        "glusterfs",
        "lustre",
        "gpfs",
        "beegfs",
        "ocfs2",
        "gfs2",
        "pvfs2",
        "davfs",
        "unc",
    ];
    // Of the file systems in user space only those that are known to be local are taken.
    const LOCAL_FUSE: [&str; 5] = [
        "fuse.fuse-overlayfs",
        "fuse.bindfs",
        "fuse.lxcfs",
        "fuse.ntfs-3g",
        "fuse.exfat",
    ];
    NAMES.contains(&kind) || (kind.starts_with("fuse.") && !LOCAL_FUSE.contains(&kind))
}

#[cfg(target_os = "linux")]
fn file_system(path: &Path) -> Option<String> {
    find_mount(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, path)
}

#[cfg(windows)]
fn file_system(path: &Path) -> Option<String> {
    use std::path::{Component, Prefix};
    match path.components().next() {
        Some(Component::Prefix(p))
            if matches!(p.kind(), Prefix::UNC(..) | Prefix::VerbatimUNC(..)) =>
        {
            Some("unc".to_owned())
        }
        _ => None,
    }
}

#[cfg(not(any(target_os = "linux", windows)))]
fn file_system(_: &Path) -> Option<String> {
    None
}

/// The type of the file system that `path` is on: the last of the longest mount points that lead to it (see proc(5)).
#[cfg(any(target_os = "linux", test))]
fn find_mount(mounts: &str, path: &Path) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let (Some(point), Some(kind)) = (before.split(' ').nth(4), after.split(' ').next()) else {
            continue;
        };
        let point = point
            .replace("\\040", " ")
            .replace("\\011", "\t")
            .replace("\\012", "\n")
            .replace("\\134", "\\");
        if path.starts_with(&point) && best.is_none_or(|(length, _)| point.len() >= length) {
            best = Some((point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 21 0:40 / /home rw - nfs4 filer:/home rw
41 40 8:2 / /home/local\\040disk rw - xfs /dev/sdb1 rw
42 21 0:41 / /mnt/s rw - fuse.sshfs host: rw
43 21 0:42 / /mnt/o rw - fuse.fuse-overlayfs o rw";

    #[test]
    fn the_longest_mount_point_decides() {
        for (path, kind, network) in [
            ("/var/m.db", "ext4", false),
            ("/homes/m.db", "ext4", false),
            ("/home/ann/m.db", "nfs4", true),
            ("/home/local disk/m.db", "xfs", false),
            ("/mnt/s/m.db", "fuse.sshfs", true),
            ("/mnt/o/m.db", "fuse.fuse-overlayfs", false),
        ] {
            assert_eq!(
                find_mount(MOUNTS, Path::new(path)).as_deref(),
                Some(kind),
                "{path}"
            );
            assert_eq!(is_network(kind), network, "{kind}");
        }
    }

    #[test]
    fn says_what_is_wrong_with_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let kind = |path: &Path| check(path, false).unwrap_err().kind();
        assert_eq!(
            kind(&dir.path().join("missing/m.db")),
            TableErrorKind::Configuration
        );
        assert_eq!(kind(dir.path()), TableErrorKind::Configuration);
        assert!(
            check(&dir.path().join("m.db"), false)
                .unwrap()
                .is_absolute()
        );
    }

    #[cfg(unix)]
    #[test]
    fn another_file_of_the_same_name_is_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, new) = (dir.path().join("m.db"), dir.path().join("n.db"));
        assert_eq!(identity(&path).unwrap(), None);
        std::fs::write(&path, "a").unwrap();
        let first = identity(&path).unwrap();
        std::fs::write(&path, "b").unwrap();
        assert_eq!(identity(&path).unwrap(), first);
        std::fs::write(&new, "b").unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert_ne!(identity(&path).unwrap(), first);
    }
}
