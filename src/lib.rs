//! weir limits HTTP traffic at Envoy's edge, with Redis as the shared memory and Lua as the atom.

pub mod bridge;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod decision;
pub mod engine;
#[cfg(feature = "host")]
mod host;
pub mod limit;
pub mod policy;
pub mod request;
pub mod resp;
pub mod script;
pub mod time;
