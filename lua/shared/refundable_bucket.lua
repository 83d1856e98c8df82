-- SPDX-License-Identifier: Apache-2.0
-- The whole microseconds of a grant's charge that may still be refunded: those that have not come back with time since
-- the grant, and have not been refunded since, to this grant or another. One microsecond less after the moment of the
-- grant, because its reply was rounded up.
local refunded_since = (refunded - receipt_refunded) % 2 ^ 52
local refundable = charged_at + receipt_reset - now - refunded_since
if now > charged_at or refunded_since > 0 then
  refundable = refundable - 1
end
