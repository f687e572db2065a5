//! A silo over HTTP: probes, metrics, and the view for services in any language.
//!
//! [`router`] gives the routes to an application that has a server already; [`Server`] is for one
//! that has none. Everything is read-only.
//!
//! | path | answers |
//! |---|---|
//! | `/livez`, `/readyz` | 200 or 503 with a reason, as [`Health::live`](crate::Health::live) and [`ready`](crate::Health::ready) say; for everybody |
//! | `/metrics` | the [metrics](crate::metrics), as Prometheus text or OpenMetrics |
//! | `/api/v1/view` | the newest view; its `ETag` has the version. `?wait=VERSION&timeout=30s` waits for a newer one |
//! | `/api/v1/events` | what happens from now on, as server-sent events; `Last-Event-ID` resumes |
//! | `/api/v1/owner?key=` | who owns a key, by the confirmed view, with the fencing token; `&role=` and `&zone=` choose among some |
//! | `/api/v1/health` | [`Health`](crate::Health) |
//! | `/api/v1/history?since=` | starts, activations, deaths, and the last commits |
//! | `/api/v1/why/{silo}` | how a silo died, or who suspects it |
//! | `/` | the [page](Options::page): the cluster at a glance, for people |
//! | `/api/v1/status` | what the page shows; `?wait=REVISION&timeout=30s` waits for something newer |
//! | `/api/v1/about/{silo}` | what its row tells of a silo, in sentences, and its neighbours on the hash rings |
//! | `/api/v1/openapi.json` | this interface as an OpenAPI 3.1 document |
//!
//! ```no_run
//! # async fn example(silo: membership::Silo) -> Result<(), Box<dyn std::error::Error>> {
//! use membership::http;
//! // In a server of the application, here axum's: behind its own checks of who asks.
//! let app: axum::Router = axum::Router::new().merge(http::router(&silo));
//! // Or a server of its own, in a thread of its own.
//! let server = http::Server::start("127.0.0.1:9700".parse()?, http::Options::new(), None)?;
//! server.show(&silo);
//! # drop(app); Ok(()) }
//! ```
//!
//! # Who may ask
//!
//! Who reads this learns the cluster's silos, their addresses and metadata; nothing secret is shown,
//! and nothing can be changed. [`Server`] listens on loopback addresses without further ado, and
//! elsewhere only with TLS and a [`Token`]. A web page that makes a browser ask a loopback address by
//! a name of its own (DNS rebinding) is refused: a request must name the server by an IP address,
//! as `localhost`, or by a name that is [allowed](Options::allow_name).

mod answer;
mod error;
mod events;
mod guard;
mod health;
mod journal;
mod kept;
mod login;
mod lookups;
mod model;
mod openapi;
mod page;
mod prometheus;
mod query;
mod room;
mod seats;
mod server;
mod stalled;
mod steady;
mod tls;
mod token;
mod turns;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn_with_state, map_response};
use axum::routing::get;

pub use self::error::HttpError;
pub use self::page::Dashboard;
pub use self::prometheus::Exporter;
pub use self::server::Server;
pub use self::tls::ServerTls;
pub use self::token::{Token, TokenError};

use self::guard::Guard;
use self::journal::Journal;
use self::page::Page;
use self::room::Room;
use crate::Silo;
use crate::silo::Observed;

/// Who may ask, and what is shown beside the silo.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Options {
    names: Vec<String>,
    token: Option<Token>,
    exporter: Option<Exporter>,
    secure: bool,
    page: bool,
    /// Shared with the server, which waits for the streams at its end.
    room: Option<Room>,
}

impl Options {
    /// Everybody who reaches the server may ask it by an IP address or as `localhost`; `/metrics`
    /// has nothing to show.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets requests name the server so: a host name without a port, for example that of a service in
    /// front of it. May be repeated.
    pub fn allow_name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Everything but `/livez` and `/readyz` needs this token: as `Authorization: Bearer …`, or in
    /// the cookie that `/login` sets for a browser.
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// What `/metrics` shows.
    pub fn metrics(mut self, exporter: Exporter) -> Self {
        self.exporter = Some(exporter);
        self
    }

    /// The page at `/`, too: the cluster at a glance, for people. [`Server`] has it by itself.
    pub const fn page(mut self) -> Self {
        self.page = true;
        self
    }

    /// Clients speak TLS with whatever is in front of the router: the cookie of `/login` is then for
    /// TLS alone. [`Server`] sets it by itself.
    pub const fn over_tls(mut self) -> Self {
        self.secure = true;
        self
    }

    /// The routes for a silo. They do not keep it running: after its end `/livez` says so, and the
    /// rest answers 503. There is no fallback, so that the router can be merged into another.
    ///
    /// Needs a tokio runtime, on which one task writes down the events. It ends with the silo.
    pub fn router(self, silo: &Silo) -> Router {
        self.observed(silo.observed())
    }

    fn observed(self, observed: Observed) -> Router {
        let room = self.room.unwrap_or_else(Room::of_process);
        let page = self
            .page
            .then(|| Page::of_silo(&observed, self.exporter.clone(), room.waits.clone()));
        let site = Arc::new(Site {
            journal: Journal::start(&observed),
            observed,
            room,
            exporter: self.exporter,
            tells_strangers: self.token.is_none(),
        });
        let guard = Guard::new(self.names, self.token, self.secure);
        let mut guarded = Router::new()
            .route("/metrics", get(prometheus::metrics))
            .route("/api/v1/view", get(view::view))
            .route("/api/v1/events", get(events::events))
            .route("/api/v1/owner", get(lookups::owner))
            .route("/api/v1/history", get(lookups::history))
            .route("/api/v1/why/{silo}", get(lookups::why))
            .route("/api/v1/health", get(health::health))
            .route("/api/v1/openapi.json", get(openapi::document))
            .with_state(site.clone());
        if let Some(page) = page {
            guarded = guarded.merge(page.routes());
        }
        let open = Router::new()
            .route("/livez", get(health::live))
            .route("/readyz", get(health::ready))
            .with_state(site);
        guard.around(open, guarded)
    }

    /// The routes for tables, without any silo.
    fn dashboard(self, dashboard: Dashboard) -> Router {
        let room = self.room.unwrap_or_else(Room::of_process);
        let page = dashboard.page(self.secure, room.waits);
        let open = Router::new()
            .route("/livez", get(async || "live\n"))
            .route("/readyz", get(async || "ready\n"));
        let guard = Guard::new(self.names, self.token, self.secure);
        guard.around(open, page.routes())
    }
}

impl Guard {
    /// Routes for everybody, and routes for those who may ask.
    fn around(self, mut open: Router, guarded: Router) -> Router {
        let guard = Arc::new(self);
        if guard.needs_token() {
            let login = get(login::form).post(login::submit);
            open = open.route("/login", login.with_state(guard.clone()));
        }
        let guarded = guarded.layer(from_fn_with_state(guard, guard::check));
        open.merge(guarded).layer(map_response(guard::headers))
    }
}

/// The routes for a silo with [`Options::new`]: see [`Options::router`].
pub fn router(silo: &Silo) -> Router {
    Options::new().router(silo)
}

/// What the handlers share.
struct Site {
    observed: Observed,
    journal: Arc<Journal>,
    room: Room,
    exporter: Option<Exporter>,
    /// Whether everybody may know why the silo has stopped: that names other silos.
    tells_strangers: bool,
}
