//! A TCP proxy between a client and its servers. It counts round trips and injects the faults of a
//! network. It knows no protocol but one message of Cassandra's, and reads of TLS only what is visible
//! without a key.
//!
//! # Round trips
//!
//! An **exchange** is a sequence of bytes from the client followed by bytes from the server.
//! Everything that a client sends before it receives an answer is one request, so pipelined
//! requests count once, and so do requests on several connections at the same time. A request
//! without an answer is no round trip, and neither is an unrequested message of the server.
//!
//! Not counted are the set-up (warm the client up first), TLS handshakes, and the client's own
//! monitoring: connections that send something while nothing is requested of the client, or that
//! are identified by their first bytes. See [`Proxy::learn_monitoring`] and
//! [`Proxy::set_monitoring`]. The keep-alive message of Cassandra's clients (`OPTIONS`) is part of no
//! exchange: it is sent every second on the connections that carry requests.
//!
//! # Clients and servers
//!
//! Servers that announce a proxy as their address reach each other through it as well: a replica
//! its master, a sentinel the servers that it watches. A connection is a **client's** if this
//! process, in which the tables under test live, holds its other end. Every other connection is a
//! **link** between servers. The proxy looks that up in the kernel's list of sockets when it
//! accepts a connection, so it works for any protocol, for servers of this machine and of
//! containers, from the first byte on. Without such a list (not Linux) all connections count as
//! clients'.
//!
//! Only clients are counted, and only clients are hit by faults between a client and a server: the
//! fault of an exchange, [`freeze_way`](Proxy::freeze_way),
//! [`freeze_connections`](Proxy::freeze_connections),
//! [`cut_connections`](Proxy::cut_connections), [`set_delay`](Proxy::set_delay). Links stay whole
//! meanwhile. [`freeze`](Proxy::freeze) and [`set_away`](Proxy::set_away) are different: they make
//! the servers themselves frozen or unreachable, for each other too.
//!
//! # Faults
//!
//! A [`Fault`] hits one exchange, once: the next one, or a later one ([`Proxy::set_fault_after`]).
//! Three others last until [`heal`](Proxy::heal): [`freeze`](Proxy::freeze) (bytes wait,
//! connections stay), [`set_away`](Proxy::set_away) (no connections), and
//! [`set_delay`](Proxy::set_delay). A test that sets a fault must check that it happened:
//! [`Proxy::has_fired`], [`Proxy::holds`].
//!
//! If a client closes its connection while the server works on its request, the proxy does not tell
//! the server until the first byte of its answer, or for 5 s. So [`Proxy::settled`] means that
//! every delivered request was also carried out.
//!
//! ```
//! use membership_fault_proxy::{Fault, Proxy, Stage};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::{TcpListener, TcpStream};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let server = TcpListener::bind("127.0.0.1:0").await?;
//! let proxy = Proxy::to(server.local_addr()?)?;
//! let mut client = TcpStream::connect(proxy.address()).await?;
//! let (mut server, _) = server.accept().await?;
//!
//! client.write_all(b"request!").await?;
//! server.read_exact(&mut [0; 8]).await?;
//! server.write_all(b"answer").await?;
//! client.read_exact(&mut [0; 6]).await?;
//! assert_eq!(proxy.round_trips(), 1);
//!
//! proxy.set_fault(Fault::Cut(Stage::BeforeRequest));
//! client.write_all(b"request!").await?;
//! assert!(client.read_exact(&mut [0; 6]).await.is_err());
//! assert!(proxy.has_fired());
//! # std::io::Result::Ok(())
//! # })?;
//! # std::io::Result::Ok(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod exchanges;
mod fault;
mod listener;
mod pipe;
mod proxy;
mod shared;
mod socket_owner;
mod tls;

pub use fault::{Away, Fault, QUIET, Stage, Way};
pub use proxy::{Counter, Proxy};

/// The code in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
