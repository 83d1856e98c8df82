// SPDX-License-Identifier: Apache-2.0
//! The streams to the bridges of all stores: a [`Streams`] for each.
//!
//! A callback opens one stream at most, before it sends anything, whatever the store: [`Streams`] says why. So they pass the permission
//! on, and take turns to be the first that has it. Otherwise a store with much traffic would keep the others from opening theirs.

use super::dispatch::store_of;
use super::{BatchId, Began, Closed, Outgoing, Sent, StoreFailure, Streams, Token, Transport};
use crate::time::Micros;

/// The streams to the bridges of all stores.
#[derive(Debug)]
pub struct Connections<T> {
    /// In the order of the configuration's regions.
    stores: Vec<Streams<T>>,
    /// The index of the one that gets the permission first.
    first: usize,
    /// True if a stream may still be opened in this callback.
    may_open: bool,
}

impl<T: Transport> Connections<T> {
    /// No stream is open yet. `transports` lead to the stores, in the order of the configuration's regions.
    pub fn new(transports: impl Iterator<Item = T>) -> Self {
        Self { stores: transports.map(Streams::new).collect(), first: 0, may_open: false }
    }

    /// A callback begins, and `may_open` a stream.
    pub fn begin_callback(&mut self, may_open: bool) {
        self.may_open = may_open;
        self.stores.iter_mut().for_each(Streams::leave_callback);
        self.first = self.first.saturating_add(may_open.into()).checked_rem(self.stores.len()).unwrap_or(0);
    }

    /// Lets one store act with the permission of this callback, and takes back what it leaves of it.
    fn with<R>(&mut self, store: usize, act: impl FnOnce(&mut Streams<T>) -> R) -> Option<R> {
        let streams = self.stores.get_mut(store)?;
        streams.begin_callback(self.may_open);
        let result = act(streams);
        self.may_open = streams.may_open();
        Some(result)
    }

    /// The numbers of the stores, in the order of their turns.
    fn turns(&self) -> impl Iterator<Item = usize> + use<T> {
        let (first, count) = (self.first, self.stores.len());
        (0..count).filter_map(move |place| first.saturating_add(place).checked_rem(count))
    }

    /// See [`Streams::rotate`].
    pub fn rotate(&mut self, now: Micros) {
        for store in self.turns() {
            self.with(store, |streams| streams.rotate(now));
        }
    }

    /// See [`Streams::next_ready`].
    pub fn next_ready(&mut self, now: Micros) -> Option<BatchId> {
        self.turns().find_map(|store| self.with(store, |streams| streams.next_ready(now)).flatten())
    }

    /// See [`Streams::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, outgoing: Outgoing, now: Micros) -> Result<Sent, StoreFailure> {
        let sent = self.with(outgoing.store.into(), |streams| streams.send(outgoing, now));
        sent.unwrap_or(Err(StoreFailure::NotSent))
    }

    /// See [`Streams::waits_for_callback`].
    #[must_use]
    pub fn waits_for_callback(&self, now: Micros) -> bool {
        self.stores.iter().any(|streams| streams.waits_for_callback(now))
    }

    fn of(&mut self, token: Token) -> Option<&mut Streams<T>> {
        self.stores.iter_mut().find(|streams| streams.has(token))
    }

    /// See [`Streams::answered`].
    pub fn answered(&mut self, token: Token) -> Option<BatchId> {
        self.of(token)?.answered(token)
    }

    /// See [`Streams::judge`].
    pub fn judge(&mut self, token: Token, well: bool, now: Micros) {
        if let Some(streams) = self.of(token) {
            streams.judge(token, well, now);
        }
    }

    /// See [`Streams::end`].
    pub fn end(&mut self, token: Token) {
        if let Some(streams) = self.of(token) {
            streams.end(token);
        }
    }

    /// See [`Streams::began`].
    pub fn began(&mut self, token: Token, now: Micros) -> Option<Began> {
        self.of(token)?.began(token, now)
    }

    /// See [`Streams::closed`].
    pub fn closed(&mut self, token: Token, status: u32, now: Micros) -> Closed {
        match self.of(token) {
            Some(streams) => streams.closed(token, status, now),
            // No stream list has it. Envoy still needs its cancellation: any of them can do that.
            None => {
                self.stores.first_mut().map_or(Closed::Idle, |streams| streams.closed(token, status, now))
            }
        }
    }

    /// See [`Streams::clear`].
    pub fn clear(&mut self) {
        self.stores.iter_mut().for_each(Streams::clear);
    }

    /// See [`Streams::next_clear`].
    #[must_use]
    pub fn next_clear(&self, now: Micros) -> Option<Micros> {
        self.stores.iter().filter_map(|streams| streams.next_clear(now)).min()
    }

    /// See [`Streams::abandon`].
    pub fn abandon(&mut self, batch: BatchId, now: Micros) {
        if let Some(streams) =
            usize::try_from(store_of(batch)).ok().and_then(|store| self.stores.get_mut(store))
        {
            streams.abandon(batch, now);
        }
    }
}

#[cfg(test)]
mod tests;
