-- SPDX-License-Identifier: Apache-2.0
-- A request may not use the part of a limit that is reserved for other classes, and no overdraft either. The part is rounded up, but
-- one unit of the limit is for all requests.
local kept = min(-floor(-quota * kept_percent / 100), quota - 1)
if kept > 0 then
  need = (cost > 0 and cost or 1) + kept
end
