// SPDX-License-Identifier: Apache-2.0
//! Draws a number that no other worker of this process has, from a value that all workers share.
//!
//! The host gives each write of the value a new version. A write that names a version succeeds only while the value has that
//! version. So only one worker can replace a version, and that version is its number.
//!
//! A write that names no version always succeeds. So while there is no value, no number can be drawn: two workers could both
//! write the first value, and neither would notice the other. Therefore the worker first writes a value, and then replaces it.

/// A shared value. Only its version matters.
pub trait Shared {
    /// The error of a call to the host.
    type Error;

    /// The version of the value; `None` while it is absent.
    ///
    /// # Errors
    /// The host's failure.
    fn version(&self) -> Result<Option<u32>, Self::Error>;

    /// Writes the value, without regard to its version.
    ///
    /// # Errors
    /// The host's failure.
    fn write(&self) -> Result<(), Self::Error>;

    /// Writes the value if it still has this version. Returns whether it had.
    ///
    /// # Errors
    /// The host's failure.
    fn replace(&self, version: u32) -> Result<bool, Self::Error>;
}

/// Draws a number that no other worker draws.
///
/// # Errors
/// The host's failure.
pub fn draw<S: Shared>(shared: &S) -> Result<u32, S::Error> {
    loop {
        match shared.version()? {
            None => shared.write()?,
            Some(version) if shared.replace(version)? => return Ok(version),
            // Another worker drew this number first.
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use super::*;

    /// Between its steps other workers draw, as often as the plan says.
    struct Host<'a> {
        next: Cell<u32>,
        version: Cell<Option<u32>>,
        plan: RefCell<&'a mut dyn Iterator<Item = usize>>,
        drawn: RefCell<Vec<u32>>,
        left: Cell<usize>,
    }

    impl Host<'_> {
        fn others_draw(&self) {
            let others = self.plan.borrow_mut().next().unwrap_or(0);
            for _ in 0..others {
                if let Some(left) = self.left.get().checked_sub(1) {
                    self.left.set(left);
                    self.draw();
                }
            }
        }

        fn draw(&self) {
            let Ok(number) = draw(self);
            self.drawn.borrow_mut().push(number);
        }

        fn set(&self) {
            self.version.set(Some(self.next.get()));
            self.next.set(self.next.get() + 1);
        }
    }

    impl Shared for Host<'_> {
        type Error = Infallible;

        fn version(&self) -> Result<Option<u32>, Infallible> {
            let version = self.version.get();
            self.others_draw();
            Ok(version)
        }

        fn write(&self) -> Result<(), Infallible> {
            self.set();
            self.others_draw();
            Ok(())
        }

        fn replace(&self, version: u32) -> Result<bool, Infallible> {
            let unchanged = self.version.get() == Some(version);
            if unchanged {
                self.set();
            }
            self.others_draw();
            Ok(unchanged)
        }
    }

    #[test]
    fn no_two_workers_draw_the_same_number_whatever_comes_between_their_steps() {
        const WORKERS: usize = 6;
        // All plans of this many steps, with up to three other workers between two steps.
        const STEPS: u32 = 8;
        for plan in 0..4_usize.pow(STEPS) {
            let mut steps = (0..STEPS).map(|step| plan / 4_usize.pow(step) % 4);
            let host = Host {
                next: Cell::new(1),
                version: Cell::new(None),
                plan: RefCell::new(&mut steps),
                drawn: RefCell::default(),
                left: Cell::new(WORKERS - 1),
            };
            host.draw();
            let drawn = host.drawn.borrow();
            let different: BTreeSet<_> = drawn.iter().collect();
            assert_eq!(
                (different.len(), host.left.get() + drawn.len()),
                (drawn.len(), WORKERS),
                "plan {plan}"
            );
        }
    }

    #[test]
    fn one_worker_after_the_other_draws_the_next_number() {
        let mut steps = std::iter::empty();
        let host = Host {
            next: Cell::new(1),
            version: Cell::new(None),
            plan: RefCell::new(&mut steps),
            drawn: RefCell::default(),
            left: Cell::new(0),
        };
        for _ in 0..3 {
            host.draw();
        }
        assert_eq!(*host.drawn.borrow(), [1, 2, 3]);
    }
}
