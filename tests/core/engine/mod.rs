// SPDX-License-Identifier: Apache-2.0
//! One worker's state machine, driven without a host and without a store.
//!
//! | file | what it shows |
//! |---|---|
//! | `batches.rs` | requests become commands and batches |
//! | `connections.rs` | batches that need a new connection to the store before they can be sent |
//! | `failures.rs` | every failure of the store is one decision by `on_failure`, within the deadline |
//! | `breaker.rs` | a store or a shard that fails is left alone, and tried again |
//! | `local.rs` | the requests that a worker admits by itself |
//! | `denials.rs` | the time for which a denial is remembered |
//! | `leases.rs` | requests that are reserved in advance |
//! | `delays.rs` | requests that are held until their turn |
//! | `late_grants.rs` | grants that arrive after their request is decided or has closed |
//! | `request_bodies.rs` | requests that wait for their own bodies |
//! | `settlements.rs` | the true cost of a request is charged or refunded |
//! | `conservation.rs` | whatever happens, each grant is charged or refunded exactly once |
//! | `bans.rs` | the bans that a worker knows of |
//! | `priority.rs` | requests of several classes of one subject |
//! | `scales.rs` | subjects whose limits are multiplied |
//! | `store.rs` | the times at which the store is asked, the number of tasks at a time, and that a worker always comes back to it |
//! | `congestion.rs` | the share of decisions that the store makes, of those that it can |
//! | `enquiries.rs` | requests that only ask what is left |
//! | `queues.rs` | requests that wait for a permit |
//! | `journal.rs` | the entries about denials in the journal; no request suffers from them |
//! | `usage.rs`, `usage_journal.rs` | units, the fullness of limits, and the usage of each subject |
//! | `warnings.rs` | the warnings that a limit is nearly used up |
//! | `metrics.rs` | each decision is counted once, under its policy and limit, by outcome and source; the most denied subjects |
//! | `peers.rs` | the metrics of other regions |
//! | `regions.rs` | the requests that workers of several regions admit together; a store that fails concerns no other |
//! | `replicas.rs` | grants that too few replicas have are decided by `on_failure`
//! | `report.rs` | statistics are exported on a tick, and nothing is lost |

mod auto_leases;
mod bans;
mod batches;
mod breaker;
mod congestion;
mod connections;
mod conservation;
mod delays;
mod denials;
mod enquiries;
mod failures;
mod journal;
mod late_grants;
mod leases;
mod local;
mod metrics;
mod peers;
mod priority;
mod queues;
mod regions;
mod replicas;
mod report;
mod request_bodies;
mod scales;
mod settlements;
mod store;
mod usage;
mod usage_journal;
mod warnings;
