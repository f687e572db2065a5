//! User and password, from a URL or from the environment. Clause T15.

use std::fmt;

use membership_core::{Operation, TableError, TableErrorKind};

/// A user and the password. `Debug` hides the password.
///
/// ```
/// use membership_provider::Credentials;
///
/// let credentials = Credentials::new("ops", "hunter2");
/// assert!(!format!("{credentials:?}").contains("hunter2"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl Credentials {
    /// This user with this password.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
        }
    }

    /// The user and the password of a URL; each that the URL leaves out comes from the environment,
    /// under the names in `variables`.
    ///
    /// ```
    /// use membership_provider::Credentials;
    ///
    /// let environment = |name: &str| (name == "MYSTORE_PASSWORD").then(|| "hunter2".to_owned());
    /// let variables = ["MYSTORE_USERNAME", "MYSTORE_PASSWORD"];
    /// let found = Credentials::find("mystore", Some("ops".to_owned()), None, environment, variables)?;
    /// assert_eq!(found, Some(Credentials::new("ops", "hunter2")));
    /// # Ok::<(), membership_core::TableError>(())
    /// ```
    ///
    /// # Errors
    /// `Configuration` where there is a user without a password, or a password without a user.
    pub fn find(
        store: &'static str,
        user: Option<String>,
        password: Option<String>,
        environment: impl Fn(&str) -> Option<String>,
        variables: [&str; 2],
    ) -> Result<Option<Self>, TableError> {
        let wrong = |message: String| {
            TableError::new(
                TableErrorKind::Configuration,
                Operation::Connect,
                store,
                message,
            )
        };
        let given = |text: Option<String>, variable: &str| {
            text.filter(|text| !text.is_empty())
                .or_else(|| environment(variable))
        };
        match (given(user, variables[0]), given(password, variables[1])) {
            (Some(user), Some(password)) => Ok(Some(Self { user, password })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(wrong(format!(
                "a user is named without a password: add it to the URL, or set {}",
                variables[1]
            ))),
            (None, Some(_)) => Err(wrong(format!(
                "a password is given without a user: add it to the URL, or set {}",
                variables[0]
            ))),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:…", self.user)
    }
}

/// An environment variable; an empty one counts as not set.
///
/// ```
/// assert_eq!(membership_provider::environment("NO_SUCH_VARIABLE"), None);
/// ```
#[must_use]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_come_together() {
        let find = |user: &str, password: &str, set: &'static [&'static str]| {
            let environment = |name: &str| {
                set.contains(&name)
                    .then(|| format!("{}-secret", name.to_lowercase()))
            };
            let some = |text: &str| Some(text.to_owned());
            Credentials::find(
                "test",
                some(user),
                some(password),
                environment,
                ["USER", "WORD"],
            )
        };
        let of = |user: &str, password: &str| Ok(Some(Credentials::new(user, password)));
        let kind = |e: TableError| e.to_string();
        assert_eq!(
            find("u", "p", &["USER", "WORD"]).map_err(kind),
            of("u", "p")
        );
        assert_eq!(
            find("u", "", &["WORD"]).map_err(kind),
            of("u", "word-secret")
        );
        assert_eq!(find("", "", &[]).map_err(kind), Ok(None));
        assert!(
            find("u", "", &[])
                .unwrap_err()
                .to_string()
                .contains("set WORD")
        );
        let error = find("", "hunter2", &[]).unwrap_err().to_string();
        assert!(
            error.contains("set USER") && !error.contains("hunter2"),
            "{error}"
        );
    }
}
