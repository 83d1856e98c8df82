-- SPDX-License-Identifier: Apache-2.0
-- concurrency: requests in flight. Each holds a permit until the permit is released or expires, so a proxy that crashed
-- holds none for long. The cost of a request does not matter: it takes one permit.
--
-- key         string, 12 bytes for each expiry: the expiry, in microseconds (7), and how many permits have it (5)
-- parameters  limit, ttl, slot: permits live at least the ttl, until the next multiple of slot since the epoch
-- extra       the expiry of the permits taken, which the release names; 0 if none is taken
local expiry = -floor((-now - ttl) / slot) * slot
local joined, others, used, last, held, changed = 0, '', 0, 0, false, false
local state = try('GET', key)
if state then
  if #state > 0 and #state % 12 == 0 then
    for place = 1, #state, 12 do
      local ends, count = unpack('<I7I5', state, place)
      if ends > now then
        used = used + count
        if ends == expiry then
          joined, held = joined + count, true
        elseif ends > expiry + ttl then
          -- The clock went back by more than a ttl: these expire with the permits of now.
          joined, changed = joined + count, true
        else
          others = others .. state:sub(place, place + 11)
          if ends > last then
            last = ends
          end
        end
      end
    end
  else
    heal(state)
  end
end
cost, need = 1, 1
local left = limit - used
-- settle
-- Permits are released, not settled.
-- take
left, joined = left - granted, joined + granted
if joined > 0 then
  others = others .. pack('<I7I5', expiry, joined)
  held = held and last < expiry and not changed
  if expiry > last then
    last = expiry
  end
  if held and granted > 0 then
    call('SET', key, others, 'KEEPTTL')
  elseif granted > 0 or changed then
    call('SET', key, others, EXPIRY, -floor(-last / 1000) - epoch)
  end
end
local reset, wait, extra = 0, 0, 0
if granted > 0 then
  extra = expiry
end
if last > now then
  reset = last - now
end
if left < need then
  -- Expiry after expiry passes, until one permit is free.
  local free, till = left, now
  while free < need and till do
    local soonest, permits
    for place = 1, #others, 12 do
      local ends, count = unpack('<I7I5', others, place)
      if ends > till and (not soonest or ends < soonest) then
        soonest, permits = ends, count
      end
    end
    till, free = soonest, free + (permits or 0)
  end
  wait = (till or now) - now
end
