// SPDX-License-Identifier: Apache-2.0
//! The pointers that Envoy holds for the module: configurations from `Arc::into_raw`, filters from `Rc::into_raw`. The `destroy` hooks
//! take these back. Envoy may call `destroy` inside a call that another hook makes, so each hook holds a reference of its own.

use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::abi::Module;

/// The pointer to a configuration for Envoy; null refuses the configuration.
pub fn to_configuration<T>(configuration: Option<T>) -> Module {
    configuration.map_or(ptr::null(), |configuration| Arc::into_raw(Arc::new(configuration)).cast())
}

/// The pointer to a filter for Envoy; null closes its stream or connection.
pub fn to_filter<T>(filter: Option<T>) -> Module {
    filter.map_or(ptr::null(), |filter| Rc::into_raw(Rc::new(filter)).cast())
}

/// The configuration behind Envoy's pointer. It lives at least as long as the caller's reference.
///
/// # Safety
/// The pointer is one of [`to_configuration`] of a `T`, and Envoy has not called its `destroy` hook.
pub unsafe fn share_configuration<T>(pointer: Module) -> Arc<T> {
    let pointer = pointer.cast::<T>();
    // SAFETY: the caller promises that Envoy still holds a reference; this adds one for the caller.
    unsafe {
        Arc::increment_strong_count(pointer);
        Arc::from_raw(pointer)
    }
}

/// The filter behind Envoy's pointer. It lives at least as long as the caller's reference.
///
/// # Safety
/// The pointer is one of [`to_filter`] of a `T`, on this thread, and Envoy has not called its `destroy` hook.
pub unsafe fn share_filter<T>(pointer: Module) -> Rc<T> {
    let pointer = pointer.cast::<T>();
    // SAFETY: the caller promises that Envoy still holds a reference; this adds one for the caller.
    unsafe {
        Rc::increment_strong_count(pointer);
        Rc::from_raw(pointer)
    }
}
