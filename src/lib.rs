//! weir limits HTTP traffic at Envoy's edge, with Redis as the shared memory and Lua as the atom.
//!
//! ```text
//!  client ─▶ listener ─▶ [host: limiter] ─▶ router ─▶ upstream
//!                           │    ▲
//!        Config::evaluate ──┤    ├── decision::decide
//!   which policies, whose   │    │   what the client is told
//!   subject, what cost      ▼    │
//!                         [ engine ]  who waits, what is asked, what becomes of them
//!                           │    ▲
//!            script: check ─┤    ├─ script: outcome
//!                           ▼    │
//!      a stream that stays open: [host: bridge] ─▶ Redis: lua/
//!                         gRPC messages ⇄ RESP
//! ```
//!
//! A house of floors, each of which imports only those beneath it:
//!
//! - 6: `host`, the proxy-wasm adapters (the only room that names `proxy_wasm`), and `cli`, the native command
//! - 5: [`engine`], one worker's state machine
//! - 4: [`config`], the operator's JSON made into what cannot fail later
//! - 3: [`policy`], [`script`], [`decision`]: whom and what to ask about; how it is asked; how the answer is told
//! - 2: [`limit`], the algorithms as pure functions, and [`bridge`], gRPC messages ⇄ RESP
//! - 1: [`request`], [`resp`], [`shared`], [`time`]

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
pub mod shared;
pub mod time;
