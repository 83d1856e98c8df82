// SPDX-License-Identifier: Apache-2.0
//! How a request is read: its path, the address of its client.

mod address;
mod path;
mod values;
