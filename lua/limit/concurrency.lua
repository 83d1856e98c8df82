-- SPDX-License-Identifier: Apache-2.0
-- concurrency: requests in flight. Each holds a permit until the permit is released or expires, so a proxy that crashed
-- holds none for long. The cost of a request does not matter: it needs one permit.
--
-- key         string, 12 bytes for each expiry, the soonest first: the expiry, in microseconds (7), and the number of its permits (5). At
--             most 64 expiries; one ttl has up to 17 at once. A longer string is not a valid state. An older weir
--             appends its own expiry, so during a rollout with two ttls a sooner one may be behind a later one
-- parameters  limit, ttl, slot: permits live at least the ttl, until the next multiple of slot since the epoch
-- extra       the expiry of the permits taken, which the release names; 0 if none is taken
--
-- Permits may be of another ttl than this one: a rollout is under way, or an operator asks with another file. They keep their expiry. So do
-- permits from before the clock went back.
local expiry = -floor((-now - ttl) / slot) * slot
local kept, joined, used, last, held, changed, mixed, at = '', 0, 0, 0, false, false, false
local state = try('GET', key)
if state then
  if #state > 0 and #state <= 768 and #state % 12 == 0 then
    local start = 1
    for place = 1, #state, 12 do
      local ends, count = unpack('<I7I5', state, place)
      local stays = false
      if ends > now and count > 0 then
        used = used + count
        if ends == expiry then
          joined, held = joined + count, true
        elseif ends > now + 33598800000000 then
          -- No permit lives longer than 366 days and a sixteenth: these expire with the permits of now.
          joined, changed = joined + count, true
        else
          stays = true
          if ends > expiry then
            at = at or #kept + place - start
          end
          if ends > last then
            last = ends
          else
            mixed = true
          end
        end
      end
      if not stays then
        if place > start then
          kept = kept .. state:sub(start, place - 1)
        end
        start = place + 12
      end
    end
    kept = kept .. state:sub(start)
  else
    heal(state)
  end
end
cost, need = 1, 1
local left = limit - used
if left > 0 and joined == 0 and #kept >= 768 then
  left = 0
end
-- settle
-- Permits are released, not settled.
-- take
left, joined = left - granted, joined + granted
if joined > 0 then
  at = at or #kept
  kept = kept:sub(1, at) .. pack('<I7I5', expiry, joined) .. kept:sub(at + 1)
  held = held and last < expiry and not changed
  if expiry > last then
    last = expiry
  end
  if held and granted > 0 then
    call('SET', key, kept, 'KEEPTTL')
  elseif granted > 0 or changed then
    call('SET', key, kept, EXPIRY, -floor(-last / 1000) - epoch)
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
  local free, place = left, 1
  if mixed then
    local soonest, counts = {}, {}
    for start = 1, #kept, 12 do
      local ends, count = unpack('<I7I5', kept, start)
      if not counts[ends] then
        soonest[#soonest + 1] = ends
      end
      counts[ends] = (counts[ends] or 0) + count
    end
    table.sort(soonest)
    for number, ends in ipairs(soonest) do
      soonest[number] = pack('<I7I5', ends, counts[ends])
    end
    kept = table.concat(soonest)
  end
  while free < need and place < #kept do
    local ends, count = unpack('<I7I5', kept, place)
    wait, free, place = ends - now, free + count, place + 12
  end
end
