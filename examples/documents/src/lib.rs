//! Runs the code in the documents of the project as doc tests. A document of a crate is tested by that
//! crate; these belong to none, and a packaged crate cannot reach them.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/new-provider.md")]
struct NewProvider;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/conformance.md")]
struct Conformance;
