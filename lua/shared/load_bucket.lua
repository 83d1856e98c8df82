-- SPDX-License-Identifier: Apache-2.0
-- Reads the state of a bucket. `expires` is the second in which its key expires.
local tat, part = unpack('<I8I5', state)
if #state == 13 then
  expires = tat / 1000000
  expires = expires - expires % 1
else
  refunded = unpack('<I7', state, 14)
  if #state == 39 then
    cut, needed, cut_part = unpack('<I7I7I5', state, 21)
  end
end
