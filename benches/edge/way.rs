// SPDX-License-Identifier: Apache-2.0
//! A round trip to Redis without an edge: at one connection, no edge that asks Redis can be faster.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use weir::config::{Config, Evaluation};
use weir::engine::Engine;
use weir::request::{Attributes, Unreadable};
use weir::resp::Scanner;
use weir::time::Micros;

use crate::stats::median;

/// A request with some user.
struct Anybody;

impl Attributes for Anybody {
    fn header(&self, _: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(Some(Cow::Borrowed(b"GET")))
    }

    fn header_lines(&self, _: &str) -> Result<usize, Unreadable> {
        Ok(1)
    }

    fn property(&self, _: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(None)
    }
}

/// The batch that a worker with this configuration sends to Redis for one request.
pub fn question(limiter: &str) -> Vec<u8> {
    let config = Rc::new(Config::parse(limiter.as_bytes()).expect("a configuration"));
    let mut engine = Engine::new(Rc::clone(&config), 1);
    let Evaluation::Check(checks) = config.evaluate(&Anybody) else { panic!("a policy matches") };
    engine.submit(1, checks, Micros::ZERO);
    engine.next_batch(Micros::ZERO).expect("a batch").body
}

/// Sends the batch again and again, with one write and one read each time. Returns the median time until the reply, in
/// microseconds.
pub fn round_trip(redis: SocketAddr, question: &[u8], measured: Duration) -> io::Result<f64> {
    let mut redis = TcpStream::connect(redis)?;
    redis.set_nodelay(true)?;
    let (mut latencies, mut reply) = (Vec::new(), [0; 4096]);
    let end = Instant::now() + measured;
    while latencies.is_empty() || Instant::now() < end {
        let (mut scanner, began) = (Scanner::new(), Instant::now());
        redis.write_all(question)?;
        loop {
            let length = redis.read(&mut reply)?;
            let read = reply.get(..length).filter(|read| !read.is_empty() && !read.starts_with(b"-"));
            let read = read.ok_or_else(|| io::Error::other("Redis does not answer the script"))?;
            if scanner.scan(read).map_err(|_| io::ErrorKind::InvalidData)?.is_some() {
                break;
            }
        }
        latencies.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&latencies))
}
