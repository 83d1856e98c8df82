// SPDX-License-Identifier: Apache-2.0
//! What Envoy keeps for the module: configurations as pointers from `Arc::into_raw`, filters as ones from `Rc::into_raw`. The
//! `destroy` hooks take these back. Envoy may call `destroy` inside a call that another hook makes, so each hook holds a reference
//! of its own.

use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::abi::Module;

/// The pointer that Envoy keeps to a configuration; null refuses it.
pub fn configuration<T>(configuration: Option<T>) -> Module {
    configuration.map_or(ptr::null(), |configuration| Arc::into_raw(Arc::new(configuration)).cast())
}

/// The pointer that Envoy keeps to a filter; null closes its stream or connection.
pub fn filter<T>(filter: Option<T>) -> Module {
    filter.map_or(ptr::null(), |filter| Rc::into_raw(Rc::new(filter)).cast())
}

/// The configuration behind Envoy's pointer, kept alive for the caller.
///
/// # Safety
/// The pointer is one of [`configuration`] of a `T`, and its `destroy` hook was not called.
pub unsafe fn share_configuration<T>(pointer: Module) -> Arc<T> {
    let pointer = pointer.cast::<T>();
    // SAFETY: by the promise of this function, there is a reference that is Envoy's; this adds one for the caller.
    unsafe {
        Arc::increment_strong_count(pointer);
        Arc::from_raw(pointer)
    }
}

/// The filter behind Envoy's pointer, kept alive for the caller.
///
/// # Safety
/// The pointer is one of [`filter`] of a `T`, on this thread, and its `destroy` hook was not called.
pub unsafe fn share_filter<T>(pointer: Module) -> Rc<T> {
    let pointer = pointer.cast::<T>();
    // SAFETY: by the promise of this function, there is a reference that is Envoy's; this adds one for the caller.
    unsafe {
        Rc::increment_strong_count(pointer);
        Rc::from_raw(pointer)
    }
}
