-- SPDX-License-Identifier: Apache-2.0
-- fixed_window with align = first: a window begins with the first request granted after the end of the last window.
-- Also with align = clock, where the limit is too large for `clock_window`. The two stay apart,
-- because a check costs Redis 1.8 times INCR + PEXPIRE here and 1.4 times there (`make bench-lua`).
--
-- key         string, 14 bytes: the start of the window, in microseconds (8), and the units used in it (6), never 0
-- parameters  limit; window; align: 0 for clock, 1 for first
-- extra       0
local start, used, changed, held = now, 0, false, false
if align == 0 then
  start = now - now % window
end
local state = try('GET', key)
if state then
  if #state == 14 then
    local from, count = unpack('<I8I6', state)
    if from > now then
      -- The clock went back. With `first`, the used units count in a window that begins now; with `clock`, in the next
      -- window, because the current one may end in a moment.
      used, changed = count, true
      if align == 0 then
        start = start + window
        if from <= start then
          start, held, changed = from, from + window, false
        end
      end
    elseif align == 0 and from >= start or align == 1 and from + window > now then
      used, held = count, from + window
      if align == 1 then
        start = from
      end
    end
  else
    heal(state)
  end
end
local left = limit - used
-- settle
-- include settle_window
-- take
-- include store_window
-- include answer_window
