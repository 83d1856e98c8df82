//! weir limits HTTP traffic at Envoy's edge, with Redis as the shared memory and Lua as the atom.

pub mod bridge;
pub mod limit;
pub mod resp;
pub mod script;
pub mod time;
