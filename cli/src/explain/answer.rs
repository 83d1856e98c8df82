// SPDX-License-Identifier: Apache-2.0
//! The client's response, in the words of HTTP or gRPC.

use std::io;

use super::Answer;
use crate::words::{shown, span, written};
use weir::limit::RetryAfter;
use weir::response::Verdict;
use weir::time::Micros;

pub fn print(answer: &Answer, out: &mut impl io::Write) -> io::Result<()> {
    let when = answer.uncounted.as_ref().map(|what| format!(", if {what}")).unwrap_or_default();
    match (&answer.verdict, &answer.inexact) {
        (Verdict::Admit(_), Some(failure)) => {
            writeln!(
                out,
                "answer{when}: the request goes to the upstream; the headers of its response are not known ({failure})"
            )
        }
        (Verdict::Admit(admission), None) => {
            let held = match admission.delay {
                Micros::ZERO => String::new(),
                delay => format!("is held for {}, then ", span(delay)),
            };
            let headers = if answer.headers.is_empty() { "" } else { "; its response gets these headers" };
            writeln!(out, "answer{when}: the request {held}goes to the upstream{headers}")?;
            print_headers(answer, out)
        }
        (Verdict::Reject(rejection), _) if answer.is_grpc => {
            let grpc = &rejection.grpc;
            writeln!(out, "answer{when}: gRPC status {}, {}", grpc.code, grpc.message)?;
            print_headers(answer, out)?;
            match grpc.pushback {
                Some(millis) => writeln!(out, "  grpc-retry-pushback-ms: {millis}"),
                None => Ok(()),
            }
        }
        (Verdict::Reject(rejection), _) => {
            writeln!(out, "answer{when}: status {}", rejection.status)?;
            print_headers(answer, out)?;
            if answer.body.is_empty() {
                return Ok(());
            }
            writeln!(out)?;
            answer.body.lines().try_for_each(|line| writeln!(out, "  {}", written(line.as_bytes())))
        }
    }
}

fn print_headers(answer: &Answer, out: &mut impl io::Write) -> io::Result<()> {
    let mut headers = answer.headers.iter();
    headers.try_for_each(|(name, value)| writeln!(out, "  {name}: {}", shown(value.as_bytes())))
}

/// Says when a rejected client may come again. `is_banned_for_ever` is true for a ban without an end.
pub fn retry(after: RetryAfter, is_banned_for_ever: bool) -> String {
    match after {
        RetryAfter::After(rest) => format!("retry after {}", span(rest)),
        RetryAfter::Now | RetryAfter::Unknown => String::from("without a time to retry"),
        RetryAfter::Never if is_banned_for_ever => String::from("until an operator lifts the ban"),
        RetryAfter::Never => String::from("always, because it costs more than a limit ever holds"),
    }
}
