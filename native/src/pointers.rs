// SPDX-License-Identifier: Apache-2.0
//! The pointers that Envoy holds for the module: configurations from `Arc::into_raw`, filters from `Rc::into_raw`. The `destroy` hooks
//! take these back. Envoy may call `destroy` inside a call that another hook makes, so each hook holds a reference of its own.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use crate::abi::Module;
use crate::panics::dropped;

/// A reference that a hook holds. It may be the last one, and then its drop runs much code: a panic there does not reach Envoy.
pub struct Held<R>(ManuallyDrop<R>);

impl<R> Held<R> {
    const fn new(reference: R) -> Self {
        Self(ManuallyDrop::new(reference))
    }
}

impl<R> Deref for Held<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.0
    }
}

impl<R> Drop for Held<R> {
    fn drop(&mut self) {
        // SAFETY: nothing uses it after this.
        dropped(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

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
pub unsafe fn share_configuration<T>(pointer: Module) -> Held<Arc<T>> {
    let pointer = pointer.cast::<T>();
    // SAFETY: the caller promises that Envoy still holds a reference; this adds one for the caller.
    unsafe {
        Arc::increment_strong_count(pointer);
        Held::new(Arc::from_raw(pointer))
    }
}

/// The filter behind Envoy's pointer. It lives at least as long as the caller's reference.
///
/// # Safety
/// The pointer is one of [`to_filter`] of a `T`, on this thread, and Envoy has not called its `destroy` hook.
pub unsafe fn share_filter<T>(pointer: Module) -> Held<Rc<T>> {
    let pointer = pointer.cast::<T>();
    // SAFETY: the caller promises that Envoy still holds a reference; this adds one for the caller.
    unsafe {
        Rc::increment_strong_count(pointer);
        Held::new(Rc::from_raw(pointer))
    }
}

/// The configuration behind Envoy's pointer, without Envoy's reference.
///
/// # Safety
/// The pointer is one of [`to_configuration`] of a `T`, and Envoy calls its `destroy` hook, which calls this once.
pub unsafe fn take_configuration<T>(pointer: Module) -> Held<Arc<T>> {
    // SAFETY: the caller promises that the pointer still has a reference, and that no code uses the pointer again.
    Held::new(unsafe { Arc::from_raw(pointer.cast::<T>()) })
}

/// The filter behind Envoy's pointer, without Envoy's reference.
///
/// # Safety
/// The pointer is one of [`to_filter`] of a `T`, on this thread, and Envoy calls its `destroy` hook, which calls this once.
pub unsafe fn take_filter<T>(pointer: Module) -> Held<Rc<T>> {
    // SAFETY: the caller promises that the pointer still has a reference, and that no code uses the pointer again.
    Held::new(unsafe { Rc::from_raw(pointer.cast::<T>()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panics;

    impl Drop for Panics {
        #[allow(clippy::panic)]
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[test]
    fn a_drop_that_panics_does_not_reach_envoy() {
        let pointer = to_filter(Some(Panics));
        // SAFETY: both are hooks of one filter: Envoy destroys it while another hook runs.
        let (held, taken) = unsafe { (share_filter::<Panics>(pointer), take_filter::<Panics>(pointer)) };
        drop(taken);
        drop(held);
    }
}
