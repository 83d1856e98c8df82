-- SPDX-License-Identifier: Apache-2.0
-- Overrides: limit.
do
  local count = override_of(key)
  limit = count and count('limit', 1) or limit
end
