// SPDX-License-Identifier: Apache-2.0
//! The responses to clients: a [`Verdict`] about each request, and the status, headers, body and gRPC status that carry it.
//!
//! ```text
//!  PolicyAnswer ─▶ verdict ─▶ Admit:  fields ─▶ headers of the upstream's response
//!  of each policy     │
//!                     └─────▶ Reject: cause, retry_after, fields, body ─▶ a local reply
//! ```
//!
//! Headers follow draft-ietf-httpapi-ratelimit-headers-11 (structured fields, RFC 9651), bodies RFC 9457, gRPC its status codes and retry
//! pushback (gRFC A6). Times are in whole seconds, gRPC's in milliseconds, rounded up: never earlier than the true time.

mod answer;
mod api;
mod body;
mod cause;
mod enquiry;
mod fields;
mod named;
mod provider;
mod record;
mod rejection;
mod retry_after;
mod settings;
mod template;
mod verdict;
mod view;

pub use answer::PolicyAnswer;
pub use cause::Cause;
pub use enquiry::enquiry;
pub use fields::{Header, Headers};
pub use record::{PolicyDenial, Record, Warning, denials, record, warnings};
pub use rejection::{DETAILS, Grpc, Rejection, Reply, deny, late, unavailable};
pub use settings::{Api, Body, Settings, Style, Upstream};
pub use template::{Cors, Kind, Own, Template};
pub use verdict::{Admission, Verdict, decide, headers, no_room_to_hold, verdict};
pub use view::{Counts, LimitView, WarnAt};
