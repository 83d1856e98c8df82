-- SPDX-License-Identifier: Apache-2.0
-- While the bucket is full, the TAT that was cut off comes nearer.
if needed then
  cut = cut - now + tat
  needed = cut > 0 and needed or nil
end
