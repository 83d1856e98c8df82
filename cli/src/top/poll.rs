// SPDX-License-Identifier: Apache-2.0
//! Asks Envoys and Redis, on a thread of its own, so that keys work while one of them is slow.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::super::hot::Hot;
use super::super::store::Redis;
use super::super::{date, words};
use super::model::{HotSubject, RedisView, Sample};
use super::stats::Stats;
use weir::policy::key::JOURNAL;
use weir::time::Micros;

/// The longest answer of an Envoy that is read, in bytes.
const MAX_ANSWER: u64 = 16 * 1024 * 1024;

/// The path of the statistics: those of weir.
const STATS: &str = "/stats?format=json&filter=weir%5C.";

const ENTRIES: usize = 1_000;

const SUBJECTS: usize = 200;

/// The addresses to ask, and the interval.
pub(super) struct Sources {
    /// Addresses of admin ports, `host:port`.
    pub admins: Vec<String>,
    /// Connects to Redis; absent if the arguments do not name it.
    pub redis: Option<Box<dyn Fn() -> Result<Redis, String> + Send>>,
    pub prefix: String,
    pub interval: Duration,
    /// The time-out for an answer of an Envoy.
    pub timeout: Duration,
}

/// Begins to ask. It ends when the receiver is dropped.
pub(super) fn begin(sources: Sources) -> Receiver<Sample> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || ask(sources, &sender));
    receiver
}

#[expect(clippy::disallowed_methods, reason = "the command measures real time")]
fn now() -> Instant {
    Instant::now()
}

fn ask(sources: Sources, sender: &SyncSender<Sample>) {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(sources.timeout))
        // An admin port is reached directly.
        .proxy(None)
        .max_redirects(0)
        .build();
    let agent = ureq::Agent::new_with_config(config);
    let (begun, mut redis) = (now(), None);
    loop {
        let round = now();
        let mut sample = Sample::default();
        for admin in &sources.admins {
            match stats(&agent, admin) {
                Ok(stats) => {
                    sample.envoys = sample.envoys.saturating_add(1);
                    sample.stats.merge(&stats);
                }
                Err(why) => sample.silent.push(format!("{admin}: {}", words::shown(why.as_bytes()))),
            }
        }
        sample.at = since(begun);
        sample.redis = sources.redis.as_ref().map(|connect| {
            let view = view(connect, &mut redis, &sources.prefix);
            if view.is_err() {
                redis = None;
            }
            view
        });
        match sender.try_send(sample) {
            // The receiver is busy: it gets the next one.
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => return,
        }
        thread::sleep(sources.interval.saturating_sub(round.elapsed()));
    }
}

fn since(begun: Instant) -> Micros {
    Micros(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX))
}

fn stats(agent: &ureq::Agent, admin: &str) -> Result<Stats, String> {
    let mut answer = agent.get(format!("http://{admin}{STATS}")).call().map_err(|error| error.to_string())?;
    let text = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_string();
    Stats::parse(&text.map_err(|error| error.to_string())?)
}

fn view(
    connect: &(impl Fn() -> Result<Redis, String> + ?Sized),
    redis: &mut Option<Redis>,
    prefix: &str,
) -> Result<RedisView, String> {
    let redis = match redis {
        Some(redis) => redis,
        None => redis.insert(connect()?),
    };
    let asked = now();
    // A user that may not do this is answered too.
    let answer = redis.ask(&[b"PING"]);
    let ping = since(asked);
    if let Err(why) = answer
        && !why.contains("NOPERM")
    {
        return Err(why);
    }
    let hot = Hot::of(redis, format!("{prefix}:{JOURNAL}").as_bytes(), ENTRIES, None, None)?;
    let subject = |(policy, subject, denied): (&[u8], &[u8], &super::super::hot::Denied)| HotSubject {
        policy: words::shown(policy),
        subject: words::shown(subject),
        field: denied.field(),
        denials: denied.count,
        last: date::text(denied.last).chars().skip(11).take(8).collect(),
        by: words::shown(if denied.limit.is_empty() { &denied.outcome } else { &denied.limit }),
    };
    let all = hot.top(SUBJECTS).into_iter().map(subject).collect();
    Ok(RedisView { ping, denials: hot.entries, skipped: hot.skipped, hot: all })
}
