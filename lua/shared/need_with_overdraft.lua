-- SPDX-License-Identifier: Apache-2.0
-- The units that must be left for a request in a bucket with an overdraft: its cost, less the overdraft, but at least
-- one unit.
need = cost - overdraft
if need < 1 then
  need = 1
end
