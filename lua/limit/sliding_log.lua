-- sliding_log: every grant is remembered for one window, so there are never more than `limit` units in any
-- window.
--
-- key         list of strings of 20 bytes, one for each grant, oldest first: its time, in microseconds (8);
--             the units of this and all earlier grants, modulo 2^48 (6); its own units (6). What the log
--             holds is the difference between its ends
-- parameters  limit, window
-- extra       0
--
-- One call grants n requests with one entry, so that entries cannot be mistaken for each other: they are told
-- apart by their place, not by their value.
local WRAP = 281474976710656
local used, latest, sum, before, changed = 0, 0, 0, 0, false

-- An entry of the log; nil if there is none, or the key is no log, or has been damaged.
local function entry(place)
  local value = try('LINDEX', key, place)
  if value then
    if #value == 20 then
      return unpack('<I8I6I6', value)
    end
    heal(value)
  end
end

local time, after, units = entry(-1)
if time then
  latest, sum = time, after
  if time > now then
    -- The clock went back: what was granted since counts as granted now.
    while time and time > now do
      before = after - units
      call('RPOP', key)
      time, after, units = entry(-1)
    end
    call('RPUSH', key, pack('<I8I6I6', now, sum, (sum - before) % WRAP))
    latest, changed = now, true
  end
  if latest + window > now then
    -- What has left the window is forgotten.
    time, after, units = entry(0)
    while time and time + window <= now do
      call('LPOP', key)
      time, after, units = entry(0)
    end
    if time then
      before = after - units
      used = (sum - before) % WRAP
    end
  end
end
local left = limit - used
-- settle
if charge > 0 then
  granted, cost = 1, charge < left and charge or left > 0 and left or 0
elseif used > 0 and paid + window > now then
  -- To the grants of that time, the last first. Whatever was granted since counts them too, and is corrected.
  local place, cuts, back, less = -1, {}, -charge, 0
  time, after, units = entry(place)
  while time and time >= paid do
    if time == paid then
      cuts[place] = units < back and units or back
      back = back - cuts[place]
    end
    place = place - 1
    time, after, units = entry(place)
  end
  for behind = place + 1, -1 do
    local cut = cuts[behind] or 0
    less = less + cut
    if less > 0 then
      time, after, units = entry(behind)
      call('LSET', key, behind, pack('<I8I6I6', time, (after - less) % WRAP, units - cut))
    end
  end
  latest, sum, units = entry(-1)
  while units == 0 do
    call('RPOP', key)
    latest, sum, units = entry(-1)
  end
  used, changed = used - less, true
  left = limit - used
end
-- take
units = granted * cost
left = left - units
if units > 0 then
  if used == 0 then
    -- Nothing in it counts, and perhaps it is no log at all.
    call('DEL', key)
    sum, before = 0, 0
  end
  sum, latest, changed = (sum + units) % WRAP, now, true
  call('RPUSH', key, pack('<I8I6I6', now, sum, units))
end
if changed and latest then
  call(epoch == 0 and 'PEXPIREAT' or 'PEXPIRE', key, -floor((-latest - window) / 1000) - epoch)
end
local reset, wait, extra = 0, 0, 0
if used + units > 0 then
  reset = latest + window - now
end
if need > limit then
  wait = -1
elseif left < need then
  -- The first grant with which enough will have left. Mostly it is the oldest.
  local low, high, middle = 0, call('LLEN', key) - 1, 0
  while low < high do
    time, after = entry(middle)
    if not time or (after - before) % WRAP >= need - left then
      high = middle
    else
      low = middle + 1
    end
    middle = floor((low + high) / 2)
  end
  wait = (entry(low) or latest) + window - now
end
