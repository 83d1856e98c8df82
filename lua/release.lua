-- SPDX-License-Identifier: Apache-2.0
-- Releases permits of `concurrency`, or renews them. A script of its own, for any number of permits of any policies in one slot.
--
-- KEYS[i]  the state of a concurrency limit; once for each expiry whose permits are released or renewed
-- ARGV[1]  numbers of 8 bytes each, packed: the time, or 0 for Redis's own; then for each key the expiry of the
--          permits, which the check replied; their number; and 0 to release them, or their ttl to renew them
-- reply    released: the number of permits that have been released. Renewed: for each key their new expiry, packed
--
-- Expired permits are released already. No more permits are released than there are. Requests whose permits are renewed still run: they
-- get permits, also if the old ones have expired, and if the limit is exceeded then.
local call, pack, unpack, floor = redis.call, struct.pack, struct.unpack, math.floor
local now = unpack('<i8', ARGV[1])
local EXPIRY, epoch = 'PXAT', 0
if now > 0 then
  -- include grace
end
local released, renewed = 0, ''
for i, key in ipairs(KEYS) do
  local expiry, requests, ttl = unpack('<i8i8i8', ARGV[1], 24 * i - 15)
  local state = redis.pcall('GET', key)
  if state and state.err and state.err:sub(1, 9) ~= 'WRONGTYPE' then
    return state
  end
  if not state or state.err or #state > 768 or #state % 12 > 0 then
    state = ''
  end
  local place = state:find(pack('<I7', expiry), 1, true)
  while place and place % 12 ~= 1 do
    place = state:find(pack('<I7', expiry), place + 1, true)
  end
  local found, left = 0, state
  if place then
    local count, rest = unpack('<I5', state, place + 7), ''
    found = count < requests and count or requests
    if found < count then
      rest = pack('<I7I5', expiry, count - found)
    end
    left = state:sub(1, place - 1) .. rest .. state:sub(place + 12)
  end
  if ttl > 0 then
    if now == 0 then
      local time = call('TIME')
      now = time[1] * 1000000 + time[2]
    end
    local slot = floor(ttl / 16)
    local target = -floor((-now - ttl) / slot) * slot
    local kept, joined, start, last, at = '', 0, 1, target
    for place = 1, #left, 12 do
      local ends, count = unpack('<I7I5', left, place)
      if ends <= now or ends == target then
        if ends == target then
          joined = joined + count
        end
        if place > start then
          kept = kept .. left:sub(start, place - 1)
        end
        start = place + 12
      elseif ends > target then
        at = at or #kept + place - start
        if ends > last then
          last = ends
        end
      end
    end
    kept = kept .. left:sub(start)
    if joined > 0 or #kept < 768 then
      at = at or #kept
      kept = kept:sub(1, at) .. pack('<I7I5', target, joined + requests) .. kept:sub(at + 1)
      call('SET', key, kept, EXPIRY, -floor(-last / 1000) - epoch)
    else
      target = expiry
    end
    renewed = renewed .. pack('<i8', target)
  elseif found > 0 then
    released = released + found
    if left == '' then
      call('DEL', key)
    else
      call('SET', key, left, 'KEEPTTL')
    end
  end
end
if renewed ~= '' then
  return renewed
end
return released
