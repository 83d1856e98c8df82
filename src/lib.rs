// SPDX-License-Identifier: Apache-2.0
//! weir limits HTTP traffic at Envoy's edge. Redis is the shared memory; one Lua script is the atomic step.
//!
//! ```text
//!  client ─▶ listener ─▶ [host: filter] ─▶ router ─▶ upstream
//!                           │    ▲
//!        Config::evaluate ──┤    ├── response::decide
//!   which policies apply,   │    │   what the client sees
//!   subject, cost           ▼    │
//!                         [ engine ]  waiting requests, batches, answers
//!                           │    ▲
//!            script: check ─┤    ├─ script: outcome
//!                           ▼    │
//!      a stream that stays open: [host: bridge] ─▶ Redis: lua/
//!                         gRPC messages ⇄ RESP
//! ```
//!
//! A top-level module imports only modules of lower layers. `tests/repository/layers.rs` reads this table, and fails if an import
//! goes upwards or sideways.
//!
//! | layer | modules | what is inside |
//! |---|---|---|
//! | 9 | `host` | the proxy-wasm adapters, the only module that names `proxy_wasm` |
//! | 8 | [`session`] | one request: headers, body and response in, what Envoy does with it out |
//! | 7 | [`engine`] | one worker's state machine: waiting requests, batches, leases, the breaker |
//! | 6 | [`config`] | the operator's JSON → a validated [`Config`](config::Config) |
//! | 5 | [`policy`] | whether a policy applies, the subject, the key, the cost |
//! | 4 | [`response`] | what clients see: verdicts, status, headers, bodies, gRPC status |
//! | 3 | [`script`], [`decision`] | links the Lua, writes its arguments, reads its reply; what the limits of one policy decide |
//! | 2 | [`limit`], [`bridge`], [`request`] | the algorithms as pure functions; gRPC messages ⇄ RESP; the attributes of a request |
//! | 1 | [`body`], [`resp`], [`shared`], [`inline_vec`], [`random`], [`sorted_map`], [`time`], [`version`] | values of JSON bodies; RESP2; numbers that no two workers draw; short lists; random numbers; maps in order; integer microseconds; which build this is |

pub mod body;
pub mod bridge;
pub mod config;
pub mod decision;
pub mod engine;
#[cfg(feature = "host")]
mod host;
pub mod inline_vec;
pub mod limit;
pub mod policy;
pub mod random;
pub mod request;
pub mod resp;
pub mod response;
pub mod script;
pub mod session;
pub mod shared;
pub mod sorted_map;
pub mod time;
pub mod version;
