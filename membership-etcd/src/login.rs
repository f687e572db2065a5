//! A user's token: obtained when a request needs it, and again when a member does not know it any
//! more. Clause T15.
//!
//! etcd's simple tokens live in the members' memory: for five minutes without a request, and not
//! beyond a member's restart. A token names the entry of the log that made it, and a member whose
//! log has not come there waits for that entry. After etcd was made anew it waits for very long, so
//! a token is forgotten with the request that was not answered in time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use membership_core::TableErrorKind;
use membership_provider::{Credentials, json};
use tokio::time::{Instant, timeout_at};

use crate::client::{Client, Member, in_time, whole};
use crate::error::{Failure, NOT_ENABLED, error};
use crate::wire::{AUTHENTICATE, Authenticate, Authenticated};

pub(crate) struct Login {
    credentials: Credentials,
    token: Mutex<Option<Token>>,
    /// Held while a token is obtained: other requests wait for that one.
    turn: tokio::sync::Mutex<()>,
}

/// What a member returned for user and password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// Every request carries it.
    Known(Arc<str>),
    /// Authentication is not enabled.
    NotEnabled,
}

impl Login {
    pub(crate) fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            token: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Token>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn token(&self) -> Option<Token> {
        self.lock().clone()
    }

    /// Forgets this token, unless another one has been obtained since.
    pub(crate) fn forget(&self, token: Option<&Token>) {
        let mut known = self.lock();
        if known.as_ref() == token {
            *known = None;
        }
    }
}

impl Client {
    /// The user's token; asks this member for one if there is none.
    pub(crate) async fn token(
        &self,
        member: &Member,
        patience: Instant,
        deadline: Instant,
    ) -> Result<Option<Token>, Failure> {
        let Some(login) = &self.login else {
            return Ok(None);
        };
        if let Some(token) = login.token() {
            return Ok(Some(token));
        }
        let not_sent = |why: String| Failure::Elsewhere(error(TableErrorKind::Unavailable, why));
        let _turn = timeout_at(deadline, login.turn.lock())
            .await
            .map_err(|_| not_sent(format!("no token within {:?}", self.timeout)))?;
        if let Some(token) = login.token() {
            return Ok(Some(token));
        }
        let user = &login.credentials.user;
        let body = json(&Authenticate {
            name: user,
            password: &login.credentials.password,
        });
        let asked = async {
            let response = self.send(member, AUTHENTICATE, body, None).await?;
            whole::<Authenticated>(response).await
        };
        let token = match in_time(patience, self.timeout, asked).await {
            Ok(given) => Token::Known(given.token.into()),
            Err(Failure::Refused(e)) if e.message().contains(NOT_ENABLED) => {
                tracing::warn!(
                    server = member.at,
                    user,
                    "a user is configured, but etcd's authentication is not enabled"
                );
                Token::NotEnabled
            }
            // Authentication writes nothing.
            Err(Failure::Lost(why)) => return Err(not_sent(why)),
            Err(Failure::Refused(e)) if e.kind() == TableErrorKind::PermissionDenied => {
                let message = format!("{} for the user `{user}`", e.message());
                return Err(Failure::Refused(error(e.kind(), message)));
            }
            Err(other) => return Err(other),
        };
        *login.lock() = Some(token.clone());
        Ok(Some(token))
    }

    /// Forgets the token: a watch was refused, and its refusals do not say why.
    pub(crate) fn forget_token(&self) {
        if let Some(login) = &self.login {
            login.forget(login.token().as_ref());
        }
    }
}

/// Shows no secret (clause T15).
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Login").field(&self.credentials).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_that_failed_is_forgotten() {
        let login = Login::new(Credentials::new("me", "s3cret"));
        assert!(login.token().is_none() && !format!("{login:?}").contains("s3cret"));
        let (old, new) = (Token::Known("old".into()), Token::Known("new".into()));
        *login.lock() = Some(new.clone());
        login.forget(Some(&old));
        assert!(login.token() == Some(new.clone()));
        login.forget(Some(&new));
        assert!(login.token().is_none());
        *login.lock() = Some(Token::NotEnabled);
        login.forget(Some(&Token::NotEnabled));
        assert!(login.token().is_none());
    }
}
