-- SPDX-License-Identifier: Apache-2.0
-- Priority: as in `bucket`.
do
  local quota = muldiv(tolerance, parts, tolerance_f, emission)
  -- include keep
  never = never or need > quota
end
