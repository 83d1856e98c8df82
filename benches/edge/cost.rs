// SPDX-License-Identifier: Apache-2.0
//! The costs of requests beside time: CPU time of processes, commands of Redis.

use std::fs;
use std::io;

use crate::support::redis::Connection;

/// The kernel's figures of some processes, in nanoseconds: the sum of all their threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// The time that they have run, in user and kernel mode.
    pub used: u64,
    /// The part of that in kernel mode. It is known in hundredths of a second.
    pub kernel: u64,
    /// The time for which they were ready to run, and another process had their core.
    pub waited: u64,
}

/// The CPU time of these processes so far.
///
/// On loopback, Linux charges the reception of a packet to its sender. That holds for all edges alike.
pub fn cpu(pids: &[u32]) -> io::Result<Cpu> {
    let mut sum = Cpu::default();
    for pid in pids {
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = thread?.path();
            // "<on a CPU> <waiting for one> <how often>"; /proc/<pid>/stat has the first in hundredths of a second.
            let schedstat = fs::read_to_string(thread.join("schedstat"))?;
            let mut fields = schedstat.split_ascii_whitespace().map(str::parse::<u64>);
            let (Some(Ok(used)), Some(Ok(waited))) = (fields.next(), fields.next()) else {
                return Err(io::Error::other(format!("schedstat of {pid}: {schedstat:?}")));
            };
            let kernel = kernel(&fs::read_to_string(thread.join("stat"))?).unwrap_or_default();
            sum = Cpu { used: sum.used + used, kernel: sum.kernel + kernel, waited: sum.waited + waited };
        }
    }
    Ok(sum)
}

/// The field `stime` of /proc/<pid>/stat, in nanoseconds. The name before it may have spaces.
fn kernel(stat: &str) -> Option<u64> {
    const TICK: u64 = 10_000_000;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(12)?.parse().ok().map(|ticks: u64| ticks * TICK)
}

/// A process and its children.
pub fn family(pid: u32) -> io::Result<Vec<u32>> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok([pid].into_iter().chain(children.split_whitespace().filter_map(|child| child.parse().ok())).collect())
}

/// The number of scripts that Redis has run so far. The edges send it nothing else. The commands inside a script do not count.
pub fn commands(redis: &mut Connection) -> u64 {
    let info = redis.call(&[b"INFO", b"commandstats"]);
    String::from_utf8_lossy(&info)
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
        .filter(|(command, _)| ["eval", "evalsha", "fcall"].contains(command))
        .filter_map(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok())
        .sum()
}
