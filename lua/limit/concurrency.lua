-- concurrency: requests in flight. Each holds a place until it is released, or until its lease ends, so that
-- a proxy that crashed holds nothing for long. What a request costs does not matter: in flight it is one.
--
-- key         string, 12 bytes for each end of leases: the end, in microseconds (7), and the places leased
--             until then (5)
-- parameters  limit, ttl, slot: leases last at least the ttl, to the next multiple of slot since the epoch
-- extra       the end of the leases taken, which is what releases them; 0 if none is taken
local lease = -floor((-now - ttl) / slot) * slot
local mine, others, used, last, held, changed = 0, '', 0, 0, false, false
local state = try('GET', key)
if state then
  if #state > 0 and #state % 12 == 0 then
    for place = 1, #state, 12 do
      local till, count = unpack('<I7I5', state, place)
      if till > now then
        used = used + count
        if till == lease then
          mine, held = mine + count, true
        elseif till > lease + ttl then
          -- The clock went back by more than a ttl: these end with the leases of now.
          mine, changed = mine + count, true
        else
          others = others .. state:sub(place, place + 11)
          if till > last then
            last = till
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
-- Places are released, not settled.
-- take
left, mine = left - granted, mine + granted
if mine > 0 then
  others = others .. pack('<I7I5', lease, mine)
  held = held and last < lease and not changed
  if lease > last then
    last = lease
  end
  if held and granted > 0 then
    call('SET', key, others, 'KEEPTTL')
  elseif granted > 0 or changed then
    call('SET', key, others, EXPIRY, -floor(-last / 1000) - epoch)
  end
end
local reset, wait, extra = 0, 0, 0
if granted > 0 then
  extra = lease
end
if last > now then
  reset = last - now
end
if left < need then
  -- Lease after lease ends, until one place is free.
  local free, till = left, now
  while free < need and till do
    local soonest, places
    for place = 1, #others, 12 do
      local ends, count = unpack('<I7I5', others, place)
      if ends > till and (not soonest or ends < soonest) then
        soonest, places = ends, count
      end
    end
    till, free = soonest, free + (places or 0)
  end
  wait = (till or now) - now
end
