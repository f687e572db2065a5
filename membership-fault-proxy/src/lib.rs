//! A TCP proxy between a client and its servers that counts round trips and makes everything go wrong that a network can make go wrong.
//! It knows no protocol, and of TLS only what can be seen without a key.
//!
//! # Round trips
//!
//! A **flight** is a stretch of bytes from the client followed by bytes from the server. Everything a client sends before it hears an
//! answer is one request, so what is pipelined counts once, and so does what is asked on several connections at the same time. A request
//! that is never answered is no round trip, and what a server says unasked is none either.
//!
//! Left out are setting up (warm the client up first), handshakes of TLS, and the client's own monitoring: connections that speak in a
//! time in which nothing is asked of the client, or whose first words tell; see [`Proxy::learn_monitoring`] and [`Proxy::set_monitoring`].
//!
//! # Clients and servers
//!
//! Servers that advertise a proxy reach each other through it as well: a replica its master, a sentinel whom it watches. A **client** is
//! who holds the other end of a connection within this process, where the tables under test live; every other connection is a **link**
//! between servers. That is looked up in the kernel's list of sockets when a connection is taken, so that it holds for any protocol, for
//! servers of this machine and of containers, from the first byte on. Where there is no such list (no Linux) nobody can tell, and all are
//! clients.
//!
//! Only clients are counted, and only clients are hit by what may go wrong between a client and a server: the fault of a flight,
//! [`freeze_way`](Proxy::freeze_way), [`cut_connections`](Proxy::cut_connections), [`set_delay`](Proxy::set_delay). Links are whole
//! meanwhile. [`freeze`](Proxy::freeze) and [`set_away`](Proxy::set_away) are different: the servers themselves are frozen or away, for
//! each other too.
//!
//! # Faults
//!
//! A [`Fault`] hits one flight, once: the next one, or the one after so many others ([`Proxy::set_fault_after`]). Standing until
//! [`heal`](Proxy::heal) are [`freeze`](Proxy::freeze) (bytes wait, connections stay), [`set_away`](Proxy::set_away) (no connections),
//! and [`set_delay`](Proxy::set_delay). Whoever sets one looks whether it was there: [`Proxy::has_fired`], [`Proxy::holds`].
//!
//! A client that hangs up while the server is at work for it is gone for everybody but that server, which hears of it with the first
//! byte of its answer, or after 5 s. So [`Proxy::settled`] means that what was delivered was also carried out.
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
//! client.write_all(b"question").await?;
//! server.read_exact(&mut [0; 8]).await?;
//! server.write_all(b"answer").await?;
//! client.read_exact(&mut [0; 6]).await?;
//! assert_eq!(proxy.round_trips(), 1);
//!
//! proxy.set_fault(Fault::Cut(Stage::BeforeRequest));
//! client.write_all(b"question").await?;
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
