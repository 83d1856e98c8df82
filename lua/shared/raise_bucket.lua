-- SPDX-License-Identifier: Apache-2.0
-- A smaller bucket has cut the TAT off; this one would have cut off less. Each bucket refills from the time of the cut.
local more = cut - needed + most
if more > 0 then
  tat, part, cut, refunded = tat + more, 0, cut - more, (refunded - more) % 2 ^ 52
end
