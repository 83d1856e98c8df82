// SPDX-License-Identifier: Apache-2.0
//! The log: weir's lines among Envoy's own, under `[dynamic_modules]`.

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::abi::{self, Buffer};

struct EnvoyLog;

impl Log for EnvoyLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // SAFETY: its argument is a number, and any thread may call it.
        unsafe { abi::log_enabled(level(metadata.level())) }
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = record.args().to_string();
            // SAFETY: Envoy copies the line; any thread may call it.
            unsafe { abi::log(level(record.level()), Buffer::of(line.as_bytes())) }
        }
    }

    fn flush(&self) {}
}

/// The ABI's number of a level.
const fn level(level: Level) -> u32 {
    match level {
        Level::Trace => 0,
        Level::Debug => 1,
        Level::Info => 2,
        Level::Warn => 3,
        Level::Error => 4,
    }
}

/// Makes it the logger of the module. Envoy calls it when it has loaded the module.
pub fn start() {
    // It fails if Envoy loads the module again: the library stays loaded, so it has its logger already.
    let _ = log::set_logger(&EnvoyLog);
    log::set_max_level(LevelFilter::Info);
}
