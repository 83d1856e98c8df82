// SPDX-License-Identifier: Apache-2.0
//! What clients are told, and that a client that does as it is told is never denied.

mod answers;
mod apis;
#[cfg(not(target_arch = "wasm32"))]
mod client;
