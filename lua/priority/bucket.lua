-- SPDX-License-Identifier: Apache-2.0
-- Priority: as in `limit`, of a bucket. Its quota is the burst, and what may wait.
do
  local quota = floor(tolerance / emission)
  -- include keep
  never = never or need > quota
end
