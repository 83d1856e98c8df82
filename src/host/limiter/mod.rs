// SPDX-License-Identifier: Apache-2.0
//! The HTTP filter: pauses a request, lets the [engine](crate::engine) ask the store about it, and does what the engine decides.
//!
//! ```text
//!  filter: request headers ─▶ submit ─▶ paused; the root's timer is armed, and a wake-up is on its way to the root
//!                                          │ (a later turn of the event loop: what arrives meanwhile joins the batch)
//!  root: on_queue_ready ─▶ turn ─▶ a message on a stream to the bridge
//!  root: on_grpc_stream_message ─▶ replied ─▶ turn: next batch out first, then up to 64 requests released
//! ```
//!
//! Batches leave from the root context only: the host cancels what a request has begun when its client disconnects, and
//! a batch belongs to many clients.

mod attributes;
mod filter;
mod reply;
mod report;
mod root;
mod seed;
mod streams;
mod wake_up;
mod worker;

pub(super) use root::Root;
