// SPDX-License-Identifier: Apache-2.0
//! A request of the command line or of a trace, as the filter has it when it decides.

use weir::config::Config;
use weir::request::body::Body;
use weir::request::sample::Sample;
use weir::request::{Attributes as _, Request};

/// Returns what is known of the body of `sample`, if a policy needs any: the whole body, or an unreadable one if the sample only says that
/// there is one.
pub(super) fn body(config: &Config, sample: &Sample) -> Option<Body> {
    let wanted = config.request_body.wanted.as_ref()?;
    match sample.body() {
        Some(bytes) => Some(Body::whole(wanted, sample, bytes)),
        None => sample.has_body().then(|| Body::unreadable(wanted)),
    }
}

/// `sample` with what is known of its body.
pub(super) fn request<'a>(config: &'a Config, sample: &'a Sample, body: Option<&'a Body>) -> Request<'a> {
    let request = Request::new(sample, &config.trust);
    match (body, &config.request_body.wanted) {
        (Some(body), _) => request.with_body(body),
        (None, Some(wanted)) => request.before_body(wanted),
        (None, None) => request,
    }
}
