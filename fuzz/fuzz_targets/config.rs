//! Any bytes as a configuration: it loads or it is refused with reasons, and what loads decides about any request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::config::{Config, Evaluation};
use weir::request::sample::Sample;

fuzz_target!(|input: (&[u8], &[u8], &[u8])| {
    let (text, path, header) = input;
    match Config::parse(text) {
        Err(errors) => assert!(!errors.is_empty()),
        Ok(config) => {
            let request = Sample::default().path(path).header("x-forwarded-for", header).header("x", header);
            if let Evaluation::Check(checks) = config.evaluate(&request.from("192.0.2.1:1")) {
                assert!(checks.iter().all(|check| config.plan(check).is_some()));
            }
        }
    }
});
