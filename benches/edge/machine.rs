// SPDX-License-Identifier: Apache-2.0
//! The machine that the figures are from, and how busy it is with other things.

use std::fmt;
use std::fs;
use std::thread;

/// The state of the machine before the benchmark began.
pub struct Machine {
    processor: String,
    cores: usize,
    /// Processes that wanted to run, on average over the last minute.
    busy: String,
}

impl Machine {
    pub fn now() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let busy = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            processor: model.map_or("an unknown processor", |(_, name)| name).into(),
            cores: thread::available_parallelism().map_or(0, Into::into),
            busy: busy.split(' ').next().unwrap_or_default().into(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, cores, busy } = self;
        write!(out, "{processor}, {cores} cores; load average {busy} before the benchmark began")
    }
}
