// SPDX-License-Identifier: Apache-2.0
//! Calls that the SDK lacks: two ways in which Envoy pauses a request, and the variables of the environment.
//!
//! Envoy takes more answers from a callback than *continue* and *pause* (`FilterHeadersStatus` and `FilterDataStatus` of proxy-wasm-cpp-host,
//! `include/proxy-wasm/context.h`). With the SDK's *pause* Envoy keeps the body of a paused request up to the listener's
//! `per_connection_buffer_limit_bytes`, and answers 413 to a larger one. With the answers below, Envoy stops reading from the client instead.
//!
//! `scripts/plugin` gives these two functions the names that Envoy calls, once the module is linked. The functions of the SDK, which have
//! these names before, are left without one.

use std::sync::atomic::{AtomicBool, Ordering};

use proxy_wasm::types::Action;

/// Nothing more of the request is shown to the filter until it is resumed. Envoy reads as much of the body as the buffer holds.
const STOP_ALL_AND_WATERMARK: u32 = 4;
/// Envoy keeps this part of the body, and reads as much of the rest as the buffer holds.
const STOP_AND_WATERMARK: u32 = 2;

/// True if the filter has to see the body of the request whose headers it pauses. A VM has one thread.
static AWAITS_BODY: AtomicBool = AtomicBool::new(false);

// As the SDK declares them: LLVM sees both, and removes a call whose types differ.
unsafe extern "C" {
    fn proxy_on_request_headers(context: u32, headers: usize, end_of_stream: bool) -> Action;
    fn proxy_on_request_body(context: u32, size: usize, end_of_stream: bool) -> Action;
}

/// The filter pauses the request in the callback of its headers, and Envoy has to show its body nevertheless.
pub fn await_body() {
    AWAITS_BODY.store(true, Ordering::Relaxed);
}

/// Envoy calls this in place of the SDK's function.
#[unsafe(no_mangle)]
extern "C" fn weir__on_request_headers(context: u32, headers: usize, end_of_stream: bool) -> u32 {
    // SAFETY: the SDK exports this function for Envoy, with these parameters.
    let answer = unsafe { proxy_on_request_headers(context, headers, end_of_stream) };
    let awaits_body = AWAITS_BODY.swap(false, Ordering::Relaxed);
    match answer {
        Action::Pause if !awaits_body => STOP_ALL_AND_WATERMARK,
        answer => answer as u32,
    }
}

/// Envoy calls this in place of the SDK's function.
#[unsafe(no_mangle)]
extern "C" fn weir__on_request_body(context: u32, size: usize, end_of_stream: bool) -> u32 {
    // SAFETY: as above.
    let answer = unsafe { proxy_on_request_body(context, size, end_of_stream) };
    match answer {
        Action::Pause => STOP_AND_WATERMARK,
        answer => answer as u32,
    }
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    // How many variables there are, and how many bytes they have together. Both return 0, or the number of an error.
    fn environ_sizes_get(count: *mut usize, size: *mut usize) -> u16;
    // Writes the place of each variable, and the variables: `NAME=VALUE`, each with a zero byte behind it.
    fn environ_get(places: *mut usize, bytes: *mut u8) -> u16;
}

/// The value of this variable of the VM's environment. It has those of Envoy's that `vm_config.environment_variables` names. The standard library
/// knows of none, because weir's target is no system.
#[must_use]
pub fn variable(name: &str) -> Option<String> {
    let (mut count, mut size) = (0, 0);
    // SAFETY: Envoy writes one number to each of these two places.
    if unsafe { environ_sizes_get(&raw mut count, &raw mut size) } != 0 {
        return None;
    }
    let (mut places, mut bytes) = (vec![0_usize; count], vec![0_u8; size]);
    // SAFETY: Envoy writes as much as it said just now, because a VM has one thread.
    if unsafe { environ_get(places.as_mut_ptr(), bytes.as_mut_ptr()) } != 0 {
        return None;
    }
    let value = |variable: &[u8]| {
        let (of, value) = core::str::from_utf8(variable).ok()?.split_once('=')?;
        (of == name).then(|| value.to_owned())
    };
    bytes.split(|byte| *byte == 0).find_map(value)
}
