-- SPDX-License-Identifier: Apache-2.0
-- sliding_window: the window slides over `slots` slots of equal length, which begin at multiples of that length since
-- the epoch, and covers a part of one more slot before them. That slot counts in proportion, unrounded. (With one slot
-- this is the well-known two-window counter.)
--
-- key         string, 20 + 6 * slots bytes: the start of the newest slot, in microseconds (8); the units in it and the
--             slots - 1 before it (6); the units in each slot, newest first, the partly covered one last (6 each)
-- parameters  limit, slot (its length), slots
-- extra       0
local size = 20 + 6 * slots
local start = now - now % slot
local total, newest, older, changed = 0, 0, nil, false
local state = try('GET', key)
if state then
  if #state == size then
    local from, sum, count = unpack('<I8I6I6', state)
    local passed = (start - from) / slot
    if from % slot ~= 0 or passed > slots then
      -- The slots have another length, or all have left the window.
      passed = nil
    elseif passed <= 0 then
      total, newest, older = sum, count, state:sub(21)
      if passed < 0 then
        -- The clock went back: the newest slot counts as the next one, because the current one may end in a moment.
        start, changed = start + slot, passed < -1
      end
    else
      for place = size - 5 - 6 * passed, size - 11, 6 do
        sum = sum - unpack('<I6', state, place)
      end
      if sum < 0 then
        sum = 0
      end
      total, older = sum, ('\0'):rep(6 * passed - 6) .. state:sub(15, size - 6 * passed)
    end
  else
    heal(state)
  end
end
local oldest = 0
if older then
  oldest = unpack('<I6', older, 6 * slots - 5)
else
  older = ('\0'):rep(6 * slots)
end
local covered = start > now and slot or slot - now + start
local part, fraction = muldiv(oldest, covered, 0, slot)
if fraction > 0 then
  part = part + 1
end
local left = limit - total - part
-- settle
if charge > 0 then
  -- include charge_left
else
  -- The refund goes to the slot that was charged, if the window still covers it.
  local age = (start - charged_at + charged_at % slot) / slot
  local count = newest
  if age > 0 and age <= slots then
    count = unpack('<I6', older, 6 * age - 5)
  end
  local back = -charge < count and -charge or count
  if age == 0 then
    newest = newest - back
  elseif age > 0 and age <= slots then
    older = older:sub(1, 6 * age - 6) .. pack('<I6', count - back) .. older:sub(6 * age + 1)
  else
    back = 0
  end
  if age == slots then
    oldest = oldest - back
    part, fraction = muldiv(oldest, covered, 0, slot)
    part = fraction > 0 and part + 1 or part
  else
    total = total - back
  end
  left, changed = limit - total - part, changed or back > 0
end
-- take
local units = granted * cost
local held = not changed and newest > 0
left, total, newest = left - units, total + units, newest + units
local reset, place = newest > 0 and slots + 1 or 0, 1
while reset == 0 and place <= slots do
  if unpack('<I6', older, 6 * place - 5) > 0 then
    reset = slots + 1 - place
  end
  place = place + 1
end
if reset == 0 then
  if changed then
    call('DEL', key)
  end
else
  reset = start + reset * slot - now
  if changed or units > 0 then
    state = pack('<I8I6I6', start, total, newest) .. older
    if held then
      -- include overwrite
    else
      call('SET', key, state, EXPIRY, -floor((-now - reset) / 1000) - epoch)
    end
  end
end
local wait, extra = 0, 0
if need > limit then
  wait = -1
elseif left < need then
  -- Slot after slot leaves the window as a whole, until the rest is a part of a slot.
  local spare, slide = limit - need, start
  place = slots
  while total > spare and place > 0 do
    place, slide = place - 1, slide + slot
    oldest = place > 0 and unpack('<I6', older, 6 * place - 5) or newest
    total = total - oldest
  end
  spare = spare - total
  if spare < oldest then
    slide = slide + slot - muldiv(spare, slot, 0, oldest)
  end
  wait = slide - now
end
