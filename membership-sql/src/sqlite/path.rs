//! Whether a path may hold the table, and whether it still leads to the open file (clause T16).
//!
//! Files are never opened here: closing a second descriptor of a file drops all locks of this
//! process on it, including those of SQLite.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use membership_core::{TableError, TableErrorKind as Kind};

use super::error::error;

/// The file that a path leads to, while it exists.
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

    // Elsewhere an open file cannot be deleted or replaced: it is enough that it exists.
    #[cfg(not(unix))]
    fn of(_: &Metadata) -> Self {
        Self { device: 0, file: 0 }
    }
}

/// The file at `path`; none when there is none.
///
/// # Errors
/// The error of the system, other than "not found".
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

/// Makes an empty file that its owner alone may read, if there is none: it will hold the cluster's
/// secret. SQLite takes an empty file for a new database, and gives its journals the same mode.
///
/// The file gets its name only when its descriptor is closed. Where that is not possible, SQLite
/// makes the file, as the process's mask says.
pub(super) fn make_hidden(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    if identity(path)?.is_none() {
        use std::os::unix::fs::OpenOptionsExt;
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".new-{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let made = options.write(true).create(true).mode(0o600).open(&name);
        if made.is_ok() {
            drop(made);
            // Another process may have been first, or the file system may know no links.
            let _ = std::fs::hard_link(&name, path);
            let _ = std::fs::remove_file(&name);
        }
    }
    let _ = path;
    Ok(())
}

/// Warns if others than the owner may read or change the file: it holds the cluster's secret.
pub(super) fn warn_of_mode(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        const OF_OTHERS: u32 = 0o066;
        let mode = std::fs::metadata(path).map(|meta| meta.permissions().mode() & 0o777);
        if let Ok(mode) = mode
            && mode & OF_OTHERS != 0
        {
            let file = path.display();
            tracing::warn!(
                %file,
                mode = format!("{mode:04o}"),
                "others may read or change the file of the table, which holds the cluster's secret: `chmod 600 {file}*`"
            );
        }
    }
    let _ = path;
}

/// The absolute path to use, if its directory exists and its file system has locks that work.
///
/// # Errors
/// `Configuration` or `PermissionDenied`.
pub(super) fn check(path: &Path, allow_network: bool) -> Result<PathBuf, TableError> {
    let shown = path.display();
    let absolute = std::path::absolute(path)
        .map_err(|e| error(Kind::Configuration, format!("{shown} is not a path")).with_source(e))?;
    let no_file = || error(Kind::Configuration, format!("{shown} is not a file"));
    let parent = absolute.parent().ok_or_else(no_file)?;
    let directory = std::fs::canonicalize(parent).map_err(|e| {
        let (kind, advice) = match e.kind() {
            io::ErrorKind::PermissionDenied => (Kind::PermissionDenied, "may not be entered"),
            _ => (Kind::Configuration, "does not exist: create it first"),
        };
        let message = format!("the directory {} {advice}", parent.display());
        error(kind, message).with_source(e)
    })?;
    let shown = absolute.display();
    if absolute.is_dir() {
        let message = format!("{shown} is a directory: name a file in it");
        return Err(error(Kind::Configuration, message));
    }
    // A link counts where its file is.
    let real = std::fs::canonicalize(&absolute).unwrap_or(directory);
    if !allow_network && let Some(kind) = file_system(&real).filter(|kind| is_network(kind)) {
        let message = format!(
            "{shown} is on a network file system ({kind}), whose locks do not keep the table consistent: use a local disk, or a \
             networked store, or set allow_network_file_system if all processes run on one machine"
        );
        return Err(error(Kind::Configuration, message));
    }
    Ok(absolute)
}

/// File systems whose locks or shared memory do not hold between machines (or, for the virtual
/// ones, between guests).
fn is_network(kind: &str) -> bool {
    const NETWORK: &str = "nfs nfs4 cifs smb smb2 smb3 smbfs ncpfs 9p drvfs afs ceph coda glusterfs lustre gpfs beegfs \
        ocfs2 gfs2 pvfs2 davfs unc";
    // Of the file systems in user space only known local ones are accepted.
    const LOCAL: &str = "fuse.fuse-overlayfs fuse.bindfs fuse.lxcfs fuse.ntfs-3g fuse.exfat";
    let is_in = |names: &str| names.split_whitespace().any(|name| name == kind);
    is_in(NETWORK) || (kind.starts_with("fuse.") && !is_in(LOCAL))
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

/// The type of the file system of `path`: of the last of its longest mount points (see proc(5)).
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
    fn bad_paths_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let kind = |path: &Path| check(path, false).unwrap_err().kind();
        assert_eq!(kind(&dir.path().join("missing/m.db")), Kind::Configuration);
        assert_eq!(kind(dir.path()), Kind::Configuration);
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
