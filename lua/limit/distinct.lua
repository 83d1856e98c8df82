-- SPDX-License-Identifier: Apache-2.0
-- distinct: at most `limit` different values are in use. A value counts from its first use, for one window; further uses of it pass, and do
-- not make that longer. A request of cost 0 adds no value.
--
-- key         string: `d`, so that no state of another algorithm is as long; then 20 bytes for each value: the times of their first uses, in
--             microseconds (7 each), the oldest first; then for each, in the same order, 1 if several requests have used it (1), and its
--             hash (12). At most 1,000 values. A longer string is not a valid state
-- question    member_high, member_low: the two halves of the value's hash, 48 bits each
-- parameters  limit, window
-- extra       if the check has added the value, for one request: member_low, by which the refund names it; otherwise 0
--
-- Values that have left the window are skipped. Only a grant removes them: a longer window may still count them.
local member, counts, ended, changed, noted = pack('<I6I6', member_high, member_low), cost > 0, 0, false, false
local state = try('GET', key)
if state and (#state > 20001 or #state % 20 ~= 1) then
  heal(state)
  state = nil
end
state = state or 'd'
local size = floor(#state / 20)
local times = 7 * size + 1
if size > 0 then
  if unpack('<I7', state, times - 6) > now then
    -- The clock went back: values of the future count as used now.
    local low, high = 0, size - 1
    while low < high do
      local middle = floor((low + high) / 2)
      if unpack('<I7', state, 7 * middle + 2) > now then
        high = middle
      else
        low = middle + 1
      end
    end
    state = state:sub(1, 7 * low + 1) .. pack('<I7', now):rep(size - low) .. state:sub(times + 1)
    changed = true
  end
  if unpack('<I7', state, 2) + window <= now then
    local high = size
    ended = 1
    while ended < high do
      local middle = floor((ended + high) / 2)
      if unpack('<I7', state, 7 * middle + 2) + window > now then
        high = middle
      else
        ended = middle + 1
      end
    end
  end
end
local left = limit - size + ended
-- A hash may begin within another one.
local place = state:find(member, times + 13 * ended + 2, true)
while place and (place - times) % 13 ~= 2 do
  place = state:find(member, place + 1, true)
end
cost, need = 0, place and left or 1
-- settle
-- A refund removes the value, if its request has added it, and no other has used it.
if charge < 0 and receipt_refunded > 0 then
  local low = pack('<I6', receipt_refunded)
  place = state:find(low, times + 13 * ended + 8, true)
  while place and (place - times) % 13 ~= 8 do
    place = state:find(low, place + 1, true)
  end
  local value = place and (place - times - 8) / 13
  if place and state:byte(place - 7) == 0 and unpack('<I7', state, 7 * value + 2) == charged_at then
    state = state:sub(1, 7 * value + 1) .. state:sub(7 * value + 9, place - 8) .. state:sub(place + 6)
    size, times, left, changed = size - 1, times - 7, left + 1, true
    if size == ended then
      call('DEL', key)
      changed = false
    end
  end
  place = nil
end
-- take
local reset, wait, extra = 0, 0, 0
if granted > 0 and counts then
  if not place then
    state = 'd' .. state:sub(7 * ended + 2, times) .. pack('<I7', now) .. state:sub(times + 13 * ended + 1)
      .. (granted > 1 and '\1' or '\0') .. member
    size, ended, left, need, changed = size - ended + 1, 0, left - 1, left - 1, true
    extra = granted == 1 and member_low or 0
  elseif state:byte(place - 1) == 0 then
    state, noted = state:sub(1, place - 2) .. '\1' .. state:sub(place), true
  end
end
if size > ended then
  reset = unpack('<I7', state, 7 * size - 5) + window - now
  if reset < 0 then
    -- The times of a forged state may be in any order.
    reset = 0
  end
end
if changed then
  call('SET', key, state, EXPIRY, -floor((-now - reset) / 1000) - epoch)
elseif noted then
  -- include overwrite
end
if left < need then
  wait = unpack('<I7', state, 7 * (ended + need - left) - 5) + window - now
  if wait < 1 then
    wait = 1
  end
end
