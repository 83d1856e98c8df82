-- SPDX-License-Identifier: Apache-2.0
-- Overrides: limit. A sliding_log holds at most 100,000 units.
do
  local count = override_of(key)
  limit = count and count('limit', 1, 100000) or limit
end
