-- SPDX-License-Identifier: Apache-2.0
-- The beginning of the month that contains `time`, both in microseconds of local time since the epoch. Months begin `later` days after the
-- first, or on their last day.
--
-- Years are counted from March, so that the leap day is the last of its year, and months have 153 days in every five. The
-- calendar repeats after 400 years, which are 146097 days. All numbers are whole, and quotients far below 2^53.
local function first_of(days)
  local of_era = (days + 719468) % 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - 365 * year - floor(year / 4) + floor(year / 100)
  return days - of_year + floor((153 * floor((5 * of_year + 2) / 153) + 2) / 5)
end
local function month(time, later)
  local days = (time - time % 86400000000) / 86400000000
  local first = first_of(days)
  if later > 0 then
    -- The 31 days after the first of a month end in the next month.
    local begin = first + min(later, first_of(first + 31) - first - 1)
    if days < begin then
      local before = first_of(first - 1)
      begin = before + min(later, first - before - 1)
    end
    first = begin
  end
  return first * 86400000000
end
