-- SPDX-License-Identifier: Apache-2.0
-- Priority: as in `limit`, for a bucket that refills in steps.
do
  local quota = capacity
  -- include keep
end
