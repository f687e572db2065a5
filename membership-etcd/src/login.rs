//! Who we are: a user's token, had when it is needed and had anew when a member does not know it any more. Clause T15.
//!
//! etcd's simple tokens live in the members' memory: for five minutes without a request, and not beyond a member's restart.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::wire::Credentials;

pub(crate) struct Login {
    user: String,
    password: String,
    token: Mutex<Option<Token>>,
    /// Whoever needs a token while one is being had waits for that one.
    pub(crate) alone: tokio::sync::Mutex<()>,
}

/// What a member gave for user and password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// What every request carries.
    Known(Arc<str>),
    /// Nothing, because it asks nobody who they are.
    NotAsked,
}

impl Login {
    pub(crate) fn new(user: &str, password: &str) -> Self {
        Self {
            user: user.to_owned(),
            password: password.to_owned(),
            token: Mutex::default(),
            alone: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    pub(crate) fn credentials(&self) -> Credentials<'_> {
        Credentials {
            name: &self.user,
            password: &self.password,
        }
    }

    pub(crate) fn token(&self) -> Option<Token> {
        self.token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn remember(&self, token: Token) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
    }

    /// It is of no use any more; unless somebody has had another one since.
    pub(crate) fn forget(&self, token: Option<&Token>) {
        let mut known = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() == token {
            *known = None;
        }
    }
}

/// Shows no secret (clause T15).
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_that_failed_is_forgotten() {
        let login = Login::new("me", "s3cret");
        assert!(login.token().is_none() && !format!("{login:?}").contains("s3cret"));
        let (old, new) = (Token::Known("old".into()), Token::Known("new".into()));
        login.remember(new.clone());
        login.forget(Some(&old));
        assert!(login.token() == Some(new.clone()));
        login.forget(Some(&new));
        assert!(login.token().is_none());
        login.remember(Token::NotAsked);
        login.forget(Some(&Token::NotAsked));
        assert!(login.token().is_none());
    }
}
