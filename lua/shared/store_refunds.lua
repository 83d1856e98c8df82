-- SPDX-License-Identifier: Apache-2.0
-- Adds to the state of a bucket the refunded units and the part of the TAT that was cut off. The key stays for as long as another
-- grant may be refunded, and a larger bucket counts.
state = state .. pack('<I7', refunded)
if needed then
  state = state .. pack('<I7I7I5', cut, needed, cut_part)
  if longest < ahead + cut + 1 then
    longest = ahead + cut + 1
  end
end
expires, ahead = 0, longest
