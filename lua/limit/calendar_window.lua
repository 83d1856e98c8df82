-- SPDX-License-Identifier: Apache-2.0
-- fixed_window with align = day, week or month: windows follow the calendar, at a fixed offset from UTC.
--
-- key         string, 14 bytes: as in `window`
-- parameters  limit; length: of each window, or for months the number of days before they begin, below zero; shift: the
--             microseconds by which the time that windows follow is ahead of `now`. That is the offset, and for weeks
--             three days more, from Monday to the epoch
-- extra       0
local start, stop
if length > 0 then
  start = now - (now + shift) % length
  stop = start + length
else
  -- No month has more than 31 days or less than 28, so this is in the next one.
  start = month(now + shift, -length)
  stop = month(start + 2678400000000, -length) - shift
  start = start - shift
end
local used, changed, held = 0, false, false
local state = try('GET', key)
if state then
  if #state == 14 then
    local from, count = unpack('<I8I6', state)
    if from > now then
      -- The clock went back. The used units count in the next window, because the current one may end in a moment.
      start, used, changed = stop, count, from ~= stop
      stop = length > 0 and start + length or month(start + shift + 2678400000000, -length) - shift
      held = from == start and stop
    elseif from >= start then
      used, held = count, from == start and stop
    end
  else
    heal(state)
  end
end
local window = stop - start
local left = limit - used
-- settle
-- include settle_window
-- take
-- include store_window
-- include answer_window
