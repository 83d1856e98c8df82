-- SPDX-License-Identifier: Apache-2.0
-- The clock went back, or a larger bucket counts on the same state; `most` is how far this one's TAT may be ahead. The TAT is
-- moved back even if nothing is granted: otherwise the subject is denied until the clock is where it was. The part that is cut off
-- counts as refunded, so that no refund gives it back a second time. It is kept for buckets whose TAT may be as far ahead. A check
-- for no request changes nothing.
if not needed then
  cut, cut_part = 0, part
end
needed = cut + tat - now
cut = needed - most
if cut > 316224000000000 then
  needed = nil
end
refunded = (refunded + tat - now + 1 - most) % 2 ^ 52
expires, changed = 0, wanted > 0
