-- SPDX-License-Identifier: Apache-2.0
-- What a request needs of a bucket with an overdraft: its cost, less what it may take in advance, but at least one
-- unit.
need = cost - overdraft
if need < 1 then
  need = 1
end
