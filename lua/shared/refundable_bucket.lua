-- SPDX-License-Identifier: Apache-2.0
-- How many whole microseconds of its charge a grant may still have refunded: what has not come back with time since
-- the grant, and has not been refunded since, to this grant or another. One microsecond less after the moment of the
-- grant, because its reply was rounded up.
local refunded_since = (refunded - receipt_refunded) % 2 ^ 52
local refundable = charged_at + receipt_reset - now - refunded_since
if now > charged_at or refunded_since > 0 then
  refundable = refundable - 1
end
