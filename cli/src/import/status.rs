// SPDX-License-Identifier: Apache-2.0
//! Statuses as Envoy's configuration has them: numbers, or names.

use super::ratelimit::number;
use crate::document::Node;

/// The names of `envoy.type.v3.StatusCode`, from 400.
const STATUSES: [(u64, &str); 37] = [
    (400, "BadRequest"),
    (401, "Unauthorized"),
    (402, "PaymentRequired"),
    (403, "Forbidden"),
    (404, "NotFound"),
    (405, "MethodNotAllowed"),
    (406, "NotAcceptable"),
    (407, "ProxyAuthenticationRequired"),
    (408, "RequestTimeout"),
    (409, "Conflict"),
    (410, "Gone"),
    (411, "LengthRequired"),
    (412, "PreconditionFailed"),
    (413, "PayloadTooLarge"),
    (414, "URITooLong"),
    (415, "UnsupportedMediaType"),
    (416, "RangeNotSatisfiable"),
    (417, "ExpectationFailed"),
    (421, "MisdirectedRequest"),
    (422, "UnprocessableEntity"),
    (423, "Locked"),
    (424, "FailedDependency"),
    (426, "UpgradeRequired"),
    (428, "PreconditionRequired"),
    (429, "TooManyRequests"),
    (431, "RequestHeaderFieldsTooLarge"),
    (500, "InternalServerError"),
    (501, "NotImplemented"),
    (502, "BadGateway"),
    (503, "ServiceUnavailable"),
    (504, "GatewayTimeout"),
    (505, "HTTPVersionNotSupported"),
    (506, "VariantAlsoNegotiates"),
    (507, "InsufficientStorage"),
    (508, "LoopDetected"),
    (510, "NotExtended"),
    (511, "NetworkAuthenticationRequired"),
];

/// And those below.
const LOWER: &str = "Empty Continue OK Created Accepted NonAuthoritativeInformation NoContent ResetContent PartialContent MultiStatus \
    AlreadyReported IMUsed MultipleChoices MovedPermanently Found SeeOther NotModified UseProxy TemporaryRedirect PermanentRedirect";

/// The status of rejections that this field of a filter says, unless it is 429, which is weir's own, too. Envoy takes 429 in place of one
/// below 400.
///
/// # Errors
/// Envoy knows no such status.
pub fn of_rejections(filter: &Node, field: &str) -> Result<Option<u64>, &'static str> {
    let Some(code) = filter.at(&[field, "code"]) else { return Ok(None) };
    let found = number(code).or_else(|| named(code.text()?));
    let found = found.ok_or("Envoy knows no status of this name, so it is 429")?;
    Ok(Some(found).filter(|code| (400..600).contains(code) && *code != 429))
}

/// The status that Envoy calls so; 0 for those below 400.
fn named(name: &str) -> Option<u64> {
    let found = STATUSES.iter().find(|(_, known)| *known == name);
    found.map(|(code, _)| *code).or_else(|| LOWER.split_whitespace().any(|known| known == name).then_some(0))
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_statuses() {
        for (name, code) in [
            ("BadRequest", Some(400)),
            ("NetworkAuthenticationRequired", Some(511)),
            ("Found", Some(0)),
            ("Nowhere", None),
        ] {
            assert_eq!(super::named(name), code, "{name}");
        }
    }
}
