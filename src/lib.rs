//! weir limits HTTP traffic at Envoy's edge, with Redis as the shared memory and Lua as the atom.

pub mod bridge;
pub mod resp;
pub mod time;
