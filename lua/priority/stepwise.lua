-- SPDX-License-Identifier: Apache-2.0
-- Priority: as in `limit`, of a bucket that fills up in steps.
do
  local quota = capacity
  -- include keep
end
