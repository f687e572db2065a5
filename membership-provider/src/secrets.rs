//! Secrets never show in errors, logs or `Debug` output. Clause T15.

use std::fmt;

/// A text that must not show, such as a password. `Debug` hides it.
///
/// ```
/// use membership_provider::Secret;
///
/// let password = Secret::from("hunter2".to_owned());
/// assert_eq!(format!("{password:?}"), "…");
/// assert_eq!(password.into_text(), "hunter2");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Texts that must not show.
///
/// ```
/// use membership_provider::Secrets;
///
/// let secrets = Secrets::new([Some("hunter2".to_owned()), None]);
/// assert_eq!(secrets.hide("AUTH `hunter2` failed"), "AUTH `…` failed");
/// assert!(!format!("{secrets:?}").contains("hunter2"));
/// ```
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// These secrets. Missing and empty ones are left out.
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = Option<String>>) -> Self {
        let secrets = secrets.into_iter().flatten();
        Self(secrets.filter(|secret| !secret.is_empty()).collect())
    }

    /// The text with `…` in the place of each secret.
    #[must_use]
    pub fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| {
            text.replace(secret.as_str(), "…")
        })
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// What `Debug` shows of a secret: whether there is one.
///
/// ```
/// use membership_provider::hidden;
/// assert_eq!(format!("{:?}", hidden(&Some("hunter2"))), "Some(\"…\")");
/// assert_eq!(format!("{:?}", hidden(&None::<String>)), "None");
/// ```
#[must_use]
pub fn hidden<T>(secret: &Option<T>) -> Option<&'static str> {
    secret.as_ref().map(|_| "…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let word = || "hunter2".to_owned();
        let secrets = Secrets::new([None, Some(String::new()), Some(word())]);
        assert_eq!(secrets.hide("user:hunter2@host"), "user:…@host");
        let shown = format!(
            "{secrets:?} {:?} {:?}",
            Secret::from(word()),
            hidden(&Some(word()))
        );
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
