-- SPDX-License-Identifier: Apache-2.0
-- sliding_log: every grant is remembered for one window, so there are never more than `limit` units in any window.
--
-- key         list of strings of 20 bytes, one for each grant, oldest first: its time, in microseconds (8); the units of
--             this and all earlier grants, modulo 2^48 (6); its own units (6), never 0. The units in the log are the
--             difference between its ends
-- parameters  limit, window
-- extra       0
--
-- One call grants n requests with one entry. Entries are found by their place, because two of them may be equal.
--
-- Only a grant sets the expiry, by its own window. Other changes never leave a log empty in between, so the key keeps the
-- expiry that a longer window may have set.
--
-- Redis does nothing else while a script runs, so no call walks through a log: entries are found by bisection and
-- removed together, and a refund corrects at most 64 entries.
local WRAP = 2 ^ 48
local used, latest, sum, before, gone = 0, 0, 0, 0, 0

-- Reads an entry of the log; nil if there is none, or if the key is not a log or is damaged.
local function entry(place)
  local value = try('LINDEX', key, place)
  if value then
    if #value == 20 then
      return unpack('<I8I6I6', value)
    end
    heal(value)
  end
end

-- Finds the first entry after this time. The last entry must be after it. A damaged entry counts as before it.
local function after_time(past)
  local low, high = 0, call('LLEN', key) - 1
  while low < high do
    local middle = floor((low + high) / 2)
    local at = entry(middle)
    if at and at > past then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local time, after, units = entry(-1)
if time then
  latest, sum = time, after
  if time > now then
    -- The clock went back: grants in the future count as granted now.
    local first = after_time(now)
    time, after, units = entry(first)
    before = after - units
    if first > 0 then
      call('LTRIM', key, 0, first - 1)
    end
    call('RPUSH', key, pack('<I8I6I6', now, sum, (sum - before) % WRAP))
    if first == 0 then
      call('LTRIM', key, -1, -1)
    end
    latest = now
  end
  if latest + window > now then
    -- Entries that have left the window are skipped. Only a grant removes them: a longer window may still count them.
    time, after, units = entry(0)
    if not time or time + window <= now then
      gone = after_time(now - window)
      time, after, units = entry(gone)
    end
    before = after - units
    used = (sum - before) % WRAP
  end
end
local left = limit - used
-- settle
-- The time of an entry; 0 for a damaged one.
local function stamp(value)
  return #value == 20 and unpack('<I8', value) or 0
end
if charge > 0 then
  -- include charge_left
elseif used > 0 and charged_at + window > now then
  -- The refund goes to the grants of that time, the last one first. The sums of all later entries are corrected too. If
  -- these are too many, the units stay charged until they leave the window.
  local entries = call('LRANGE', key, -9, -1)
  if #entries == 9 and stamp(entries[1]) >= charged_at then
    entries = call('LRANGE', key, -65, -1)
  end
  if #entries < 65 or stamp(entries[1]) < charged_at then
    local oldest, rest = 1, #entries + 1
    while oldest < rest do
      local middle = floor((oldest + rest) / 2)
      if stamp(entries[middle]) < charged_at then
        oldest = middle + 1
      else
        rest = middle
      end
    end
    -- The units of that time.
    local granted_then = 0
    while entries[rest] and stamp(entries[rest]) == charged_at do
      time, after, units = unpack('<I8I6I6', entries[rest])
      granted_then, rest = granted_then + units, rest + 1
    end
    local less = -charge < granted_then and -charge or granted_then
    if less > 0 then
      local kept, stays, cut = {}, granted_then - less, 0
      for place = oldest, #entries do
        -- Damaged entries do not count, and are dropped.
        if #entries[place] == 20 then
          time, after, units = unpack('<I8I6I6', entries[place])
          if place < rest then
            local part = units < stays and units or stays
            stays, cut, units = stays - part, cut + units - part, part
          end
          if units > 0 then
            kept[#kept + 1] = pack('<I8I6I6', time, (after - cut) % WRAP, units)
          end
        end
      end
      if oldest > 1 or #kept == 0 then
        call('LTRIM', key, 0, oldest - #entries - 2)
      end
      if #kept > 0 then
        call('RPUSH', key, _G.unpack(kept))
      end
      if oldest == 1 and #kept > 0 then
        call('LTRIM', key, #entries, -1)
      end
      latest, sum = entry(-1)
      used = used - less
      left = limit - used
    end
  end
end
-- take
units = granted * cost
left = left - units
if units > 0 then
  if used == 0 then
    -- No entry counts any more, or the key is not a log.
    call('DEL', key)
    sum, before = 0, 0
  elseif gone > 0 then
    call('LTRIM', key, gone, -1)
    gone = 0
  end
  sum, latest = (sum + units) % WRAP, now
  call('RPUSH', key, pack('<I8I6I6', now, sum, units))
  call(epoch == 0 and 'PEXPIREAT' or 'PEXPIRE', key, -floor((-now - window) / 1000) - epoch)
end
local reset, wait, extra = 0, 0, 0
if used + units > 0 then
  reset = latest + window - now
end
if need > limit then
  wait = -1
elseif left < need then
  -- Finds the first grant with which enough units will have left the window. Mostly it is the oldest.
  local low, high, middle = gone, call('LLEN', key) - 1, gone
  while low < high do
    time, after = entry(middle)
    if not time or (after - before) % WRAP >= need - left then
      high = middle
    else
      low = middle + 1
    end
    middle = floor((low + high) / 2)
  end
  -- An entry of the future counts as one of now, also where asking has not corrected it.
  wait = min(entry(low) or latest, now) + window - now
end
