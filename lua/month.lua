-- SPDX-License-Identifier: Apache-2.0
-- The beginning of the month that contains `time`, both in microseconds of local time since the epoch.
--
-- Years are counted from March, so that the leap day is the last of its year, and months have 153 days in every five. The
-- calendar repeats after 400 years, which are 146097 days. All numbers are whole, and quotients far below 2^53.
local function month(time)
  local days = (time - time % 86400000000) / 86400000000
  local of_era = (days + 719468) % 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - 365 * year - floor(year / 4) + floor(year / 100)
  return (days - of_year + floor((153 * floor((5 * of_year + 2) / 153) + 2) / 5)) * 86400000000
end
