-- SPDX-License-Identifier: Apache-2.0
-- What is kept of a limit for requests of other classes has to be left after this one, which may take nothing in advance. It
-- is rounded up, but one unit of the limit is for all requests.
local kept = min(-floor(-quota * kept_percent / 100), quota - 1)
if kept > 0 then
  need = (cost > 0 and cost or 1) + kept
end
