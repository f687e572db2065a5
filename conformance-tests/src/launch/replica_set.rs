//! A replica set of MongoDB with several members: one of them goes, and the others go on.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::process::LOOK;
use super::software::mongodb::{is_primary, is_secondary, make_set, user};
use super::software::{in_url, last_lines};
use super::{Kind, LaunchError, Options, Server, on_thread};

/// What the set is called.
const NAME: &str = "rs0";
/// How long anything may take that the members have to agree on.
const AGREED: Duration = Duration::from_secs(120);

/// Members that are processes of this machine, and keep what they acknowledge. Gone when it is dropped.
#[derive(Clone, Debug)]
pub struct ReplicaSet {
    members: Vec<Server>,
    names: Vec<SocketAddr>,
    password: Option<String>,
}

impl ReplicaSet {
    /// Starts so many members, makes a set of them in which a failover takes seconds, and waits for its primary. With a password its user is
    /// `root`. `known_as` says at which address the others and clients find a member: its own, or that of a proxy in front of it.
    ///
    /// # Errors
    /// As [`Server::start`]; also when the environment names a server.
    pub async fn start(
        members: usize,
        password: Option<&str>,
        mut known_as: impl FnMut(usize, SocketAddr) -> SocketAddr,
    ) -> Result<Self, LaunchError> {
        let mut set = Self {
            members: Vec::new(),
            names: Vec::new(),
            password: password.map(str::to_owned),
        };
        for number in 0..members {
            // Processes also where containers are asked for: they reach each other at 127.0.0.1.
            let args = vec![format!("--replSet={NAME}")];
            let options = Options {
                durable: true,
                local: true,
                args,
                password: set.password.clone(),
                ..Options::default()
            };
            let server = Server::start(Kind::MongoDb, options).await?;
            set.names.push(known_as(number, server.address()));
            set.members.push(server);
        }
        let (first, names) = (set.address(0), set.names.clone());
        set.until("the set is made", move |_| {
            make_set(first, NAME, &names).map(Some)
        })
        .await?;
        set.primary_but(None).await?;
        if let Some(password) = set.password.clone() {
            let make = move |set: &Self| {
                primary_of(set)?
                    .map(|primary| user(set.address(primary), &password))
                    .transpose()
            };
            set.until("the set has a user", make).await?;
        }
        Ok(set)
    }

    /// All of them, also those that do not run.
    #[must_use]
    pub fn members(&self) -> &[Server] {
        &self.members
    }

    /// Its address as the provider takes it.
    #[must_use]
    pub fn url(&self) -> String {
        let names: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        let (who, from) = match &self.password {
            Some(password) => (format!("root:{}@", in_url(password)), "&authSource=admin"),
            None => (String::new(), ""),
        };
        format!(
            "mongodb://{who}{}/membership?replicaSet={NAME}{from}",
            names.join(",")
        )
    }

    /// Waits until somebody else than this member is the primary, and says so; gives who.
    ///
    /// # Errors
    /// When nobody is for two minutes.
    pub async fn primary_but(&self, not: Option<usize>) -> Result<usize, LaunchError> {
        self.until("there is another primary", move |set| {
            Ok(primary_of(set)?.filter(|primary| Some(*primary) != not))
        })
        .await
    }

    /// Kills whoever is the primary (SIGKILL); gives who it was.
    ///
    /// # Errors
    /// When nobody is the primary for two minutes.
    pub async fn kill_primary(&self) -> Result<usize, LaunchError> {
        let primary = self.primary_but(None).await?;
        let Some(member) = self.members.get(primary) else {
            return Err(self.failed(primary, "no such member".to_owned()));
        };
        member.kill().await?;
        Ok(primary)
    }

    /// Starts a member again on its data, and returns when it takes part.
    ///
    /// # Errors
    /// When it does not come up, or does not take part within two minutes.
    pub async fn start_again(&self, member: usize) -> Result<(), LaunchError> {
        let Some(server) = self.members.get(member) else {
            return Err(self.failed(member, "no such member".to_owned()));
        };
        server.start_again().await?;
        let address = server.address();
        let takes_part =
            move |_: &Self| Ok((is_secondary(address)? || is_primary(address)?).then_some(()));
        self.until("the member takes part again", takes_part).await
    }

    fn address(&self, member: usize) -> SocketAddr {
        self.members
            .get(member)
            .map_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)), Server::address)
    }

    /// Asks until there is an answer.
    async fn until<T: Send + 'static>(
        &self,
        what: &'static str,
        asked: impl Fn(&Self) -> io::Result<Option<T>> + Send + 'static,
    ) -> Result<T, LaunchError> {
        let set = self.clone();
        on_thread(move || {
            let deadline = Instant::now() + AGREED;
            loop {
                let why = match asked(&set) {
                    Ok(Some(answer)) => return Ok(answer),
                    Ok(None) => "not so yet".to_owned(),
                    Err(error) => error.to_string(),
                };
                if Instant::now() > deadline {
                    return Err(set.failed(
                        0,
                        format!("waited {} s until {what} ({why})", AGREED.as_secs()),
                    ));
                }
                std::thread::sleep(LOOK);
            }
        })
        .await
    }

    fn failed(&self, member: usize, why: String) -> LaunchError {
        let log = self
            .members
            .get(member)
            .and_then(|member| member.log().ok())
            .unwrap_or_default();
        LaunchError::Start {
            kind: Kind::MongoDb,
            why,
            log: last_lines(&log),
        }
    }
}

/// Who says to be the primary. Who stands still, or does not run, says nothing.
fn primary_of(set: &ReplicaSet) -> io::Result<Option<usize>> {
    let runs = |member: &Server| matches!(member.process_id(), Ok(Some(_)));
    let says = |member: &Server| runs(member) && is_primary(member.address()).unwrap_or(false);
    Ok(set.members.iter().position(says))
}
