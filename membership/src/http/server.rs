//! A server for applications that have none. It has a thread of its own, so that its clients cannot
//! delay the silo's probes.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::answer::{Problem, Shared, text};
use super::kept::Kept;
use super::room::Room;
use super::seats::{Busy, Seat, Seats};
use super::stalled::Stalled;
use super::turns::Turns;
use super::{Dashboard, Exporter, HttpError, Options, ServerTls, guard};
use crate::Silo;

/// A form or a change, and how long it may take to come.
const MAX_BODY: usize = 8 << 10;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may take for the head of a request, and be quiet between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// What a connection may hold that its client has not taken: 500 clients stay small.
const MAX_BUFFER: usize = 16 << 10;
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
const CLOSING: Duration = Duration::from_millis(200);

/// A running HTTP server. It ends when this is dropped.
///
/// Until [`show`](Self::show) it says that the silo is joining: `/livez` is 200, everything else 503.
pub struct Server {
    address: SocketAddr,
    options: Options,
    shown: Arc<OnceLock<Router>>,
    runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Listens and answers, in a thread of its own. Port 0 is any free one.
    ///
    /// # Errors
    /// [`HttpError::Open`] for an address that is not a loopback address, unless `tls` and a
    /// [token](Options::token) are given: [`start_open`](Self::start_open) allows it. The others say
    /// what is wrong with the address or the files.
    pub fn start(
        address: SocketAddr,
        options: Options,
        tls: Option<ServerTls>,
    ) -> Result<Self, HttpError> {
        let closed = tls.is_some() && options.token.is_some();
        if !address.ip().to_canonical().is_loopback() && !closed {
            return Err(HttpError::Open { address });
        }
        Self::start_open(address, options, tls)
    }

    /// The same at any address: whoever reaches it reads what is not protected by TLS or a token. For
    /// networks that nobody else reaches, and behind a proxy that does both.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_open(
        address: SocketAddr,
        mut options: Options,
        tls: Option<ServerTls>,
    ) -> Result<Self, HttpError> {
        let room = Room::of_process();
        let seats = Seats::new(room.connections);
        options.room = Some(room);
        options.page = true;
        let bind = |source| HttpError::Bind { address, source };
        let system = |e: std::io::Error| HttpError::System(e.to_string());
        let tls = match tls {
            Some(tls) => {
                options.secure = true;
                Some(TlsAcceptor::from(Arc::new(tls.config()?)))
            }
            None => None,
        };
        let listener = TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Whoever asks whether the silo lives is heard after one other request, and not after 61.
            .event_interval(1)
            .build()
            .map_err(system)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(bind)?
        };
        let shown = Arc::new(OnceLock::new());
        let (stop, stopped) = oneshot::channel();
        let server = Self {
            address,
            runtime: runtime.handle().clone(),
            shown: shown.clone(),
            options: options.clone(),
            _stop: stop,
        };
        let answering = Answering {
            router: outer(shown),
            tls,
            exporter: options.exporter,
            seats,
            turns: Turns::new(),
        };
        std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        () = answering.accept(listener) => {}
                    }
                });
                // Streams and waiting requests end here.
                runtime.shutdown_background();
            })
            .map_err(system)?;
        Ok(server)
    }

    /// Where it listens; the port is never 0.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether clients speak TLS with it.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.options.secure
    }

    /// Shows this silo from now on; only the first call does something. The server does not keep the
    /// silo running.
    pub fn show(&self, silo: &Silo) {
        let _entered = self.runtime.enter();
        let router = self.options.clone().router(silo).fallback(nowhere);
        let _ = self.shown.set(router);
    }

    /// Shows tables from now on, without any silo: the page, and what it is made of. Only the first
    /// call of this and of [`show`](Self::show) does something.
    pub fn show_dashboard(&self, dashboard: Dashboard) {
        let _entered = self.runtime.enter();
        let router = self.options.clone().dashboard(dashboard).fallback(nowhere);
        let _ = self.shown.set(router);
    }
}

impl Server {
    /// Ends the server after the silo has ended: waits until its streams have told their clients so,
    /// for a fifth of a second at most.
    pub async fn close(self) {
        let room = self.options.room.as_ref();
        let open = || room.is_some_and(|room| room.streams.are_used());
        let until = Instant::now() + CLOSING;
        while open() && Instant::now() < until {
            sleep(Duration::from_millis(5)).await;
        }
        // The last bytes are on their way to the sockets.
        sleep(Duration::from_millis(10)).await;
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// The routes of the silo once there is one.
fn outer(shown: Arc<OnceLock<Router>>) -> Router {
    Router::new()
        .fallback(pass)
        .with_state(shown)
        .layer(map_response(guard::headers))
}

async fn pass(State(shown): State<Arc<OnceLock<Router>>>, request: Request) -> Response {
    match shown.get() {
        Some(router) => match router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        None if request.uri().path() == "/livez" => text(StatusCode::OK, "joining\n"),
        None => Problem::joining().into_response(),
    }
}

async fn nowhere() -> Problem {
    Problem::not_found("there is nothing at this path: /api/v1/openapi.json lists what there is")
}

struct Answering {
    router: Router,
    tls: Option<TlsAcceptor>,
    exporter: Option<Exporter>,
    seats: Arc<Seats>,
    turns: Turns,
}

impl Answering {
    async fn accept(self, listener: tokio::net::TcpListener) {
        if let Some(exporter) = self.exporter.clone() {
            tokio::spawn(async move {
                loop {
                    sleep(UPKEEP_EVERY).await;
                    exporter.upkeep();
                }
            });
        }
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "a connection for HTTP was not accepted");
                    // Usually the process has too many open files; others will be closed.
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Some(seat) = self.seats.take().await else {
                continue;
            };
            let _ = stream.set_nodelay(true);
            let (router, tls, seat) = (self.router.clone(), self.tls.clone(), Arc::new(seat));
            let turns = self.turns.clone();
            tokio::spawn(async move {
                let answered = async {
                    match tls {
                        None => answer(stream, router, &seat, &turns).await,
                        Some(tls) => {
                            let accepted = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await;
                            if let Ok(Ok(stream)) = accepted {
                                answer(stream, router, &seat, &turns).await;
                            }
                        }
                    }
                };
                tokio::select! {
                    () = answered => {}
                    () = seat.must_leave() => {}
                }
            });
        }
    }
}

/// The request with its body, if it is one that may be sent and the body comes in time.
async fn whole(request: hyper::Request<hyper::body::Incoming>) -> Result<Request, Problem> {
    let (head, body) = request.into_parts();
    if matches!(head.method, Method::GET | Method::HEAD) {
        // Nobody reads a body of it.
        return Ok(Request::from_parts(head, Body::empty()));
    }
    // A dashboard that allows changes has routes below `/act/`.
    let path = head.uri.path();
    let may_write = path == "/login" || path.starts_with("/act/");
    if head.method != Method::POST || !may_write {
        return Err(Problem::method_not_allowed());
    }
    let body = timeout(BODY_TIMEOUT, to_bytes(Body::new(body), MAX_BODY)).await;
    let Ok(Ok(body)) = body else {
        let message = "the body must come within 10 s, and have 8 KiB at most";
        return Err(Problem::bad_request(message));
    };
    Ok(Request::from_parts(head, Body::from(body)))
}

async fn answer<S>(stream: S, router: Router, seat: &Arc<Seat>, turns: &Turns)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let (router, seat, turns) = (router.clone(), seat.clone(), turns.clone());
        async move {
            // Until all of it is here, and it is its turn, the connection is one that gives way.
            let request = match whole(request).await {
                Ok(request) => request,
                Err(problem) => return Ok(guard::headers(problem.into_response()).await),
            };
            seat.is_busy(false);
            // A client that sends many requests at once lets others in between.
            tokio::task::yield_now().await;
            let is_probe = matches!(request.uri().path(), "/livez" | "/readyz");
            let work = async {
                let works = seat.works();
                (router.oneshot(request).await, works)
            };
            let (response, works) = match is_probe {
                true => work.await,
                false => turns.take(work).await,
            };
            response.map(|response| on_its_way(response, &seat, works))
        }
    });
    let answered = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(
            TokioIo::new(Stalled::new(stream, Some(seat.clone()))),
            service,
        );
    if let Err(error) = answered.await {
        tracing::debug!(%error, "a connection for HTTP ended early");
    }
}

/// A stream keeps its connection busy for as long as it has a body; a request with `HEAD` gets none.
/// What of another answer is its own takes memory until the client has it.
fn on_its_way(response: Response, seat: &Seat, works: Busy) -> Response {
    match response.body().size_hint().exact() {
        None => response.map(|body| Kept::until_taken(body, works)),
        Some(bytes) => {
            drop(works);
            let all = usize::try_from(bytes).unwrap_or(usize::MAX);
            let shared = response.extensions().get::<Shared>();
            seat.answers(all.saturating_sub(shared.map_or(0, |shared| shared.0)));
            response
        }
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
