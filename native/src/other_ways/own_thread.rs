// SPDX-License-Identifier: Apache-2.0
//! Each worker has a socket of its own. The worker writes to it, and a thread reads the replies and commits to the worker's clock.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use weir_core::engine::{Outgoing, Pipeline, StoreFailure};

use super::Answer;
use crate::clock::{Handle, locked};
use crate::ways::Ticket;

thread_local! {
    static WAY: RefCell<Option<Way>> = const { RefCell::new(None) };
}

struct Way {
    socket: TcpStream,
    pipeline: Pipeline<Ticket>,
    /// What the thread has read.
    received: Arc<Mutex<Vec<u8>>>,
}

/// Sends a batch. The first one connects.
pub fn send(address: &str, clock: Handle, ticket: Ticket, outgoing: &Outgoing) -> Result<(), StoreFailure> {
    WAY.with(|way| {
        let way = &mut *way.borrow_mut();
        if way.is_none() {
            *way = connect(address, clock);
        }
        let way = way.as_mut().ok_or(StoreFailure::NotSent)?;
        way.socket.write_all(&outgoing.body).map_err(|_| StoreFailure::NotSent)?;
        way.pipeline.sent(ticket, outgoing.replies);
        Ok(())
    })
}

fn connect(address: &str, clock: Handle) -> Option<Way> {
    let socket = TcpStream::connect(address).ok()?;
    socket.set_nodelay(true).ok()?;
    let (mut reading, received) = (socket.try_clone().ok()?, Arc::new(Mutex::new(Vec::new())));
    let inbox = Arc::clone(&received);
    let read = move || {
        let mut bytes = vec![0; 65_536];
        while let Ok(length @ 1..) = reading.read(&mut bytes) {
            let inbox = &mut *locked(&inbox);
            // Until the worker has taken what is there, a wake-up is on its way.
            let is_first = inbox.is_empty();
            inbox.extend(bytes.iter().take(length));
            if is_first {
                clock.wake();
            }
        }
    };
    std::thread::Builder::new().name("weir-way".into()).spawn(read).ok()?;
    Some(Way { socket, pipeline: Pipeline::new(), received })
}

/// What was answered since.
pub fn take_answers() -> Vec<Answer> {
    WAY.with(|way| {
        let mut answered = Vec::new();
        if let Some(way) = &mut *way.borrow_mut() {
            let received = std::mem::take(&mut *locked(&way.received));
            let mut rest = received.as_slice();
            while let Ok(Some((ticket, replies))) = way.pipeline.next(&mut rest) {
                answered.push((ticket, Some(replies)));
            }
        }
        answered
    })
}
