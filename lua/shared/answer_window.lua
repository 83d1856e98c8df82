-- SPDX-License-Identifier: Apache-2.0
-- The answer of a fixed window.
local reset, wait, extra = 0, 0, 0
if used + units > 0 then
  reset = start + window - now
end
if left < need then
  wait = need > limit and -1 or start + window - now
end
