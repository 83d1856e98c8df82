// SPDX-License-Identifier: Apache-2.0
//! Sockets that reach a listener of the tests' Envoy, if there is one.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// For each listener, the connections that the module has opened and the test has not accepted yet.
static LISTENERS: Mutex<BTreeMap<String, Vec<Accepted>>> = Mutex::new(BTreeMap::new());

/// Envoy's side of a connection. Its end closes the connection.
pub struct Accepted(Arc<AtomicBool>);

impl Drop for Accepted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

pub fn listen(name: &str) {
    LISTENERS.lock().unwrap().insert(name.to_owned(), Vec::new());
}

pub fn close(name: &str) {
    let closed = LISTENERS.lock().unwrap().remove(name);
    drop(closed);
}

pub fn accept(name: &str) -> Option<Accepted> {
    LISTENERS.lock().unwrap().get_mut(name)?.pop()
}

pub struct Address(String);

impl Address {
    pub fn of(name: &str) -> Option<Self> {
        Some(Self(name.to_owned()))
    }
}

pub struct Socket(Arc<AtomicBool>);

impl Socket {
    pub fn connect(Address(name): &Address) -> io::Result<Self> {
        let is_open = Arc::new(AtomicBool::new(true));
        let mut listeners = LISTENERS.lock().unwrap();
        let waiting = listeners.get_mut(name).ok_or(ErrorKind::ConnectionRefused)?;
        waiting.push(Accepted(Arc::clone(&is_open)));
        Ok(Self(is_open))
    }

    pub fn is_open(&mut self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
