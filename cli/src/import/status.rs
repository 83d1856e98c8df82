// SPDX-License-Identifier: Apache-2.0
//! Statuses as Envoy's configuration has them: numbers, or names.

use super::ratelimit::number;
use crate::document::Node;

/// The names of `envoy.type.v3.StatusCode`.
const STATUSES: &str = "Empty=0 Continue=100 OK=200 Created=201 Accepted=202 \
    NonAuthoritativeInformation=203 NoContent=204 ResetContent=205 PartialContent=206 MultiStatus=207 \
    AlreadyReported=208 IMUsed=226 MultipleChoices=300 MovedPermanently=301 Found=302 SeeOther=303 \
    NotModified=304 UseProxy=305 TemporaryRedirect=307 PermanentRedirect=308 BadRequest=400 \
    Unauthorized=401 PaymentRequired=402 Forbidden=403 NotFound=404 MethodNotAllowed=405 \
    NotAcceptable=406 ProxyAuthenticationRequired=407 RequestTimeout=408 Conflict=409 Gone=410 \
    LengthRequired=411 PreconditionFailed=412 PayloadTooLarge=413 URITooLong=414 UnsupportedMediaType=415 \
    RangeNotSatisfiable=416 ExpectationFailed=417 MisdirectedRequest=421 UnprocessableEntity=422 \
    Locked=423 FailedDependency=424 UpgradeRequired=426 PreconditionRequired=428 TooManyRequests=429 \
    RequestHeaderFieldsTooLarge=431 InternalServerError=500 NotImplemented=501 BadGateway=502 \
    ServiceUnavailable=503 GatewayTimeout=504 HTTPVersionNotSupported=505 VariantAlsoNegotiates=506 \
    InsufficientStorage=507 LoopDetected=508 NotExtended=510 NetworkAuthenticationRequired=511";

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

/// The status that Envoy calls so.
fn named(name: &str) -> Option<u64> {
    STATUSES.split_whitespace().find_map(|known| known.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_statuses() {
        for (name, code) in [
            ("BadRequest", Some(400)),
            ("NetworkAuthenticationRequired", Some(511)),
            ("Found", Some(302)),
            ("Nowhere", None),
        ] {
            assert_eq!(super::named(name), code, "{name}");
        }
    }
}
