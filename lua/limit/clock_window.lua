-- SPDX-License-Identifier: Apache-2.0
-- fixed_window with align = clock: windows begin at multiples of the window since the epoch (a minute at :00).
--
-- key         string, decimal: 2 * (start of the window, in microseconds) + units used in it. One number, so one INCRBY
--             both reads and charges. The same script takes back an excessive charge
-- parameters  limit, window; most: the most units that the number says of this window, under whatever limit
-- extra       0
--
-- Linked only if limit < 2 * window, less than two units a microsecond; `window` is for larger limits. The number stays
-- below 2^53 until 2112.
local start = now - now % window
local taken = granted * cost
if taken > limit then
  taken = floor(limit / cost) * cost
end
local mark
if taken > 0 then
  -- Redis prints a number with 17 digits, which takes longer than INCRBY itself. Most requests cost one unit.
  mark = try('INCRBY', key, taken == 1 and '1' or taken)
else
  -- INCRBY 0 would leave a key behind.
  mark = try('GET', key)
end
local number = tonumber(mark)
if number then
  mark = number - taken
else
  -- The same as `heal`, without the cost of a closure. INCRBY has two more errors for a value that is not a count.
  local kind = mark and mark.err and mark.err:sub(1, 9)
  if kind and kind ~= 'WRONGTYPE' and kind ~= 'ERR value' and kind ~= 'ERR incre' then
    return mark
  end
  mark, taken = 0, 0
end
local used, changed = mark - 2 * start, false
if used >= 2 * window then
  -- The window has not begun: the clock went back. The used units count until the end of the next window, because the
  -- current one may end in a moment.
  start, changed = start + window, used >= 4 * window
  used = used % (2 * window)
end
if not (used >= 0 and used <= most) then
  -- The state is of an earlier window, or of a window of another length.
  start, used, changed = now - now % window, 0, false
end
local left = limit - used
-- settle
-- include settle_window
-- take
local units = granted * cost
left = left - units
if changed and used + units == 0 then
  call('DEL', key)
elseif changed or used == 0 and units > 0 then
  call('SET', key, 2 * start + used + units, EXPIRY, -floor((-start - window) / 1000) - epoch)
elseif taken > units then
  if mark == 0 then
    call('DEL', key)
  else
    call('DECRBY', key, taken - units)
  end
end
-- include answer_window
