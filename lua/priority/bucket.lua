-- SPDX-License-Identifier: Apache-2.0
-- Priority: as in `limit`, for a bucket. Its quota is the burst, and the units that may wait.
do
  local quota = floor(tolerance / emission)
  -- include keep
  never = never or need > quota
end
