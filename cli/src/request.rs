// SPDX-License-Identifier: Apache-2.0
//! A request of the command line or of a trace, as the filter has it when it decides.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;

use weir::config::Config;
use weir::request::body::Body;
use weir::request::sample::Sample;
use weir::request::{Attributes, Request, Unreadable};
use weir::time::Micros;

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
pub(super) fn request<'a>(
    config: &'a Config,
    sample: &'a dyn Attributes,
    body: Option<&'a Body>,
) -> Request<'a> {
    let request = Request::new(sample, &config.trust);
    match (body, &config.request_body.wanted) {
        (Some(body), _) => request.with_body(body),
        (None, Some(wanted)) => request.before_body(wanted),
        (None, None) => request,
    }
}

/// A request that remembers which attributes were asked for that only Envoy knows.
pub(super) struct Watched<'a> {
    sample: &'a Sample,
    unknown: RefCell<BTreeSet<String>>,
}

impl<'a> Watched<'a> {
    pub const fn new(sample: &'a Sample) -> Self {
        Self { sample, unknown: RefCell::new(BTreeSet::new()) }
    }

    /// The names of these attributes, as `--attribute` has them.
    pub fn unknown(&self) -> Vec<String> {
        self.unknown.borrow().iter().cloned().collect()
    }
}

impl Attributes for Watched<'_> {
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        self.sample.header(name)
    }

    fn header_lines(&self, name: &str) -> Result<usize, Unreadable> {
        self.sample.header_lines(name)
    }

    fn now(&self) -> Option<Micros> {
        self.sample.now()
    }

    fn has_body(&self) -> bool {
        self.sample.has_body()
    }

    fn body(&self) -> Option<&[u8]> {
        self.sample.body()
    }

    fn property(&self, path: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        if !self.sample.knows(path) {
            let has_dots = path.iter().any(|name| name.contains('.'));
            self.unknown.borrow_mut().insert(path.join(if has_dots { "/" } else { "." }));
        }
        Attributes::property(self.sample, path)
    }
}
