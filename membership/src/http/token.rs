//! Tokens that let a client ask, in a file that is read again when it changes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ring::hmac;

use crate::transport::files;

/// A change of the file counts within this time.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A token that nobody guesses: 16 characters of base64 have 96 bits.
const SHORTEST: usize = 16;
const LONGEST: usize = 512;

/// Tokens of which a request must have one: the lines of a file, 16 to 512 visible ASCII characters
/// each. Lines that are empty or begin with `#` do not count. A change of the file counts within
/// 5 s; if the new content cannot be used, the old one stays, and a warning says so.
#[derive(Clone)]
pub struct Token(Arc<Inner>);

struct Inner {
    path: PathBuf,
    /// Of this process: tokens are compared by their authentication codes, in constant time.
    key: hmac::Key,
    now: Mutex<Now>,
}

struct Now {
    tokens: Vec<hmac::Tag>,
    seen: Option<(SystemTime, u64)>,
    looked_at: Instant,
}

/// Why a file with tokens cannot be used. Shows no token.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", name(.path))]
pub struct TokenError {
    path: PathBuf,
    reason: String,
}

fn name(path: &Path) -> String {
    let hidden = || {
        "the token file (its name is not shown, because it may be the token itself: give the path of a file)".to_owned()
    };
    files::shown(path).unwrap_or_else(hidden)
}

impl Token {
    /// Reads a file of tokens.
    ///
    /// # Errors
    /// [`TokenError`]: it cannot be read, or has no token, or a line that is none.
    pub fn file(path: impl Into<PathBuf>) -> Result<Self, TokenError> {
        let path = path.into();
        let error = |reason: String| TokenError {
            path: path.clone(),
            reason,
        };
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|e| error(e.to_string()))?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        let seen = stamp(&path);
        let tokens = read(&path, &key).map_err(error)?;
        files::warn_of_mode(&path);
        Ok(Self(Arc::new(Inner {
            path,
            key,
            now: Mutex::new(Now {
                tokens,
                seen,
                looked_at: Instant::now(),
            }),
        })))
    }

    /// Whether this is one of the tokens.
    pub(super) fn accepts(&self, shown: &str) -> bool {
        let is_it =
            |token: &hmac::Tag| hmac::verify(&self.0.key, shown.as_bytes(), token.as_ref()).is_ok();
        self.tokens().iter().any(is_it)
    }

    /// What names a token in a session, if it is one; it tells nothing of the token.
    pub(super) fn id(&self, shown: &str) -> Option<String> {
        let shown = hmac::sign(&self.0.key, shown.as_bytes());
        let mut ids = self.tokens().into_iter().map(|token| hex(token.as_ref()));
        ids.find(|id| *id == hex(shown.as_ref()))
    }

    /// Whether the token with this id is still one.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.tokens().iter().any(|token| hex(token.as_ref()) == id)
    }

    fn tokens(&self) -> Vec<hmac::Tag> {
        let mut now = self.0.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.looked_at.elapsed() >= LOOK_EVERY {
            now.looked_at = Instant::now();
            let seen = stamp(&self.0.path);
            if seen != now.seen {
                now.seen = seen;
                match read(&self.0.path, &self.0.key) {
                    Ok(tokens) => now.tokens = tokens,
                    Err(reason) => {
                        let file = name(&self.0.path);
                        tracing::warn!(
                            file,
                            reason,
                            "the changed token file cannot be used; the tokens of before stay"
                        );
                    }
                }
            }
        }
        now.tokens.clone()
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = path.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read(path: &Path, key: &hmac::Key) -> Result<Vec<hmac::Tag>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| files::unread(&e))?;
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut tokens = Vec::new();
    for line in lines {
        let fits = (SHORTEST..=LONGEST).contains(&line.len());
        if !fits || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "a line is no token: {SHORTEST} to {LONGEST} visible ASCII characters, for example of `openssl rand -base64 24`"
            ));
        }
        tokens.push(hmac::sign(key, line.as_bytes()));
    }
    match tokens.is_empty() {
        true => Err("it has no token: write one per line".to_owned()),
        false => Ok(tokens),
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_token_and_errors_show_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        std::fs::write(&file, "# of today\nabcdefghijklmnop\n\n0123456789abcdefg\n").unwrap();
        let token = Token::file(&file).unwrap();
        assert!(token.accepts("abcdefghijklmnop") && token.accepts("0123456789abcdefg"));
        for wrong in ["", "abcdefghijklmno", "abcdefghijklmnopq", "# of today"] {
            assert!(!token.accepts(wrong), "{wrong}");
        }
        assert!(!format!("{token:?}").contains("abcdef"));
        let id = token.id("abcdefghijklmnop").unwrap();
        assert!(token.knows(&id) && token.id("other-token-of-mine").is_none());
        for (text, why) in [
            ("", "no token"),
            ("tooshort", "16"),
            ("with a space in it", "16"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = Token::file(&file).unwrap_err().to_string();
            assert!(
                error.contains(why) && !error.contains("tooshort"),
                "{error}"
            );
        }
        let error = Token::file("abcdefghijklmnop").unwrap_err().to_string();
        assert!(!error.contains("abcdefghijklmnop"), "{error}");
    }
}
