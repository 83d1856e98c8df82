//! The tables of the pure modules once more, compiled to wasm32 as the plugin is, and run on Node:
//! `cargo test --no-default-features --target wasm32-unknown-unknown --test wasm`.
#![cfg(target_arch = "wasm32")]
#![allow(missing_docs)]

mod bridge;
mod config;
mod policy;
mod resp;
mod response;
