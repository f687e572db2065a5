//! A secret beside the table: a file of keys, which every silo of the cluster has.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use membership_core::{ClusterKey, ClusterKeys};
use ring::digest::{Context, SHA256};
use tokio::sync::watch;

use super::files;

/// The shortest key: `openssl rand -hex 32` gives 64 characters.
const SHORTEST: usize = 32;
/// The most keys of a file; every handshake compares with each.
const MOST: usize = 8;

const NO_TEXT: &str = "it is not text in UTF-8 (PowerShell's `>` writes UTF-16): write it anew with a key of `openssl rand -hex 32`, in PowerShell by `| Out-File -Encoding ascii`";

/// A secret that every silo of a cluster needs besides the table: where many may read the table, it
/// keeps those from joining that have read it alone.
///
/// The file has one key per line, of at least 32 characters; empty lines, and lines that begin with
/// `#`, are ignored. A silo proves that it has the **first** key, and accepts each of them. So the
/// secret is changed without an interruption: append the new key to every file, then put it first
/// everywhere, then remove the old one. A running silo looks at the file every 30 s.
#[derive(Clone)]
pub struct Secret(Arc<Inner>);

struct Inner {
    path: PathBuf,
    keys: RwLock<ClusterKeys>,
    changes: watch::Sender<()>,
}

/// Why a file of keys cannot be used. Shows no key.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", name(.path))]
pub struct SecretError {
    path: PathBuf,
    reason: String,
}

fn name(path: &Path) -> String {
    match files::shown(path) {
        Some(path) => format!("the secret file {path}"),
        None => {
            "the secret file (its name is not shown, because it may be the key itself: write the key into a file, and give the path of that file)".to_owned()
        }
    }
}

impl Secret {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// [`SecretError`]: it cannot be read, is no text, has no key, one that is short or repeats one
    /// character, or more than eight.
    pub fn file(path: impl Into<PathBuf>) -> Result<Self, SecretError> {
        let path = path.into();
        let keys = RwLock::new(read(&path)?);
        let changes = watch::Sender::new(());
        Ok(Self(Arc::new(Inner {
            path,
            keys,
            changes,
        })))
    }

    /// Reads the file again. If that fails, the keys stay as they are.
    ///
    /// # Errors
    /// As [`file`](Self::file).
    pub fn reload(&self) -> Result<(), SecretError> {
        let new = read(&self.0.path)?;
        let keys = self.0.keys.write();
        let before = std::mem::replace(
            &mut *keys.unwrap_or_else(PoisonError::into_inner),
            new.clone(),
        );
        if new != before {
            self.0.changes.send_replace(());
        }
        Ok(())
    }

    pub(in crate::transport) fn warn_of_mode(&self) {
        files::warn_of_mode(&self.0.path);
    }

    /// Changes of the keys.
    pub(in crate::transport) fn changes(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }

    /// The keys now, the first one first.
    pub(in crate::transport) fn keys(&self) -> ClusterKeys {
        let keys = self.0.keys.read();
        keys.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(path: &Path) -> Result<ClusterKeys, SecretError> {
    let error = |reason: String| SecretError {
        path: path.to_owned(),
        reason,
    };
    let bytes = std::fs::read(path).map_err(|e| error(files::unread(&e)))?;
    let text = std::str::from_utf8(&bytes).ok();
    let text = text.filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| error(NO_TEXT.to_owned()))?;
    parse(text).map_err(error)
}

/// The keys in the text of a file.
pub(in crate::transport) fn parse(text: &str) -> Result<ClusterKeys, String> {
    // The mark that some editors put before the first line. It belongs to no key.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let mut keys = Vec::new();
    for (number, line) in lines {
        if line.len() < SHORTEST {
            let number = number + 1;
            return Err(format!(
                "line {number} is shorter than {SHORTEST} characters: make a key with `openssl rand -hex 32`"
            ));
        }
        let first = line.as_bytes().first();
        if line.bytes().all(|byte| Some(&byte) == first) {
            let number = number + 1;
            return Err(format!(
                "line {number} is one character again and again, which anybody can guess: make a key with `openssl rand -hex 32`"
            ));
        }
        keys.push(key(line));
    }
    match keys.len() {
        0 => Err("it has no key: write one with `openssl rand -hex 32`".to_owned()),
        1..=MOST => Ok(keys.into_iter().collect()),
        n => Err(format!("it has {n} keys, at most {MOST} are allowed")),
    }
}

/// The key of a line, whatever its length.
fn key(line: &str) -> ClusterKey {
    let mut context = Context::new(&SHA256);
    context.update(b"membership secret file\0");
    context.update(line.as_bytes());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    ClusterKey::new(bytes)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("path", &self.0.path)
            .finish_non_exhaustive()
    }
}

/// Whether both are of the same file.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.path == other.0.path
    }
}
impl Eq for Secret {}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const TWO: &str = "fedcba9876543210fedcba9876543210";

    #[test]
    fn keys_are_read_again_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, format!("# ours\n\n{ONE}\n")).unwrap();
        let secret = Secret::file(&path).unwrap();
        let before = secret.keys();
        assert_eq!(before.len(), 1);
        assert!(!format!("{secret:?} {before:?}").contains("0123"));
        std::fs::write(&path, format!("{TWO}\n{ONE}\r\n")).unwrap();
        secret.reload().unwrap();
        assert_eq!(secret.keys().len(), 2);
        assert!(secret.keys().accept(&before.prove(&[b"x"]), &[b"x"]));
        std::fs::write(&path, "short\n").unwrap();
        let error = secret.reload().unwrap_err().to_string();
        assert!(
            error.contains("line 1") && !error.contains("short\n"),
            "{error}"
        );
        assert_eq!(secret.keys().len(), 2, "the keys stay");
    }

    #[test]
    fn what_an_editor_puts_around_a_key_belongs_to_no_key() {
        let key = parse(ONE).unwrap();
        for text in [
            format!("\u{feff}{ONE}\r\n"),
            format!("\u{feff}# ours, made in november\r\n\t{ONE} \r\n"),
        ] {
            assert_eq!(parse(&text).unwrap(), key, "{text:?}");
        }
        assert!(parse("\u{feff}# a comment, longer than any key must be").is_err());
    }

    #[test]
    fn a_file_that_is_no_text_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let utf_16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let with_mark = utf_16(&format!("\u{feff}{ONE}"));
        for bytes in [with_mark, utf_16(ONE), vec![0xc3; 32]] {
            std::fs::write(&path, bytes).unwrap();
            let error = Secret::file(&path).unwrap_err().to_string();
            assert!(
                error.contains("UTF-8") && error.contains("openssl"),
                "{error}"
            );
        }
        let error = Secret::file(dir.path()).unwrap_err().to_string();
        assert!(error.contains("name a file"), "{error}");
        let error = Secret::file(ONE).unwrap_err().to_string();
        assert!(
            !error.contains("0123") && error.contains("write the key into a file"),
            "{error}"
        );
    }

    #[test]
    fn a_file_without_a_good_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        assert!(Secret::file(&path).is_err());
        for (text, why) in [
            (String::new(), "no key"),
            ("# nothing\n".to_owned(), "no key"),
            (format!("{ONE}\n").repeat(9), "9 keys"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Secret::file(&path).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
