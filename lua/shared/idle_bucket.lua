-- SPDX-License-Identifier: Apache-2.0
-- While the bucket is full, the lead of the TAT that was cut off decreases.
if needed then
  cut = cut - now + tat
  needed = cut > 0 and needed or nil
end
