// SPDX-License-Identifier: Apache-2.0
//! Normal and suspect slots. A batch is answered when all of its commands are, so one shard that hangs would delay every request that
//! shares a batch with it. If the last answer of some slots was an error, these are therefore *suspect*: they have their own queue, batches
//! and congestion window.

/// The slots of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// The slots without a failure since their last answer.
    Normal,
    /// The slots whose last answer was an error.
    Suspect,
}

/// One value for the normal slots, one for the suspect ones.
#[derive(Debug)]
pub(in crate::engine) struct BySlots<T> {
    pub normal: T,
    pub suspect: T,
}

impl<T> BySlots<T> {
    pub const fn of(&self, slots: Slots) -> &T {
        match slots {
            Slots::Normal => &self.normal,
            Slots::Suspect => &self.suspect,
        }
    }

    pub const fn of_mut(&mut self, slots: Slots) -> &mut T {
        match slots {
            Slots::Normal => &mut self.normal,
            Slots::Suspect => &mut self.suspect,
        }
    }
}
