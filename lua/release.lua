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
  local target = 0
  if ttl > 0 then
    if now == 0 then
      local time = call('TIME')
      now = time[1] * 1000000 + time[2]
    end
    local slot = floor(ttl / 16)
    target = -floor((-now - ttl) / slot) * slot
  end
  local before, after, joined, last, found = '', '', 0, 0, 0
  for place = 1, #state, 12 do
    local ends, count = unpack('<I7I5', state, place)
    if ends == expiry then
      found = count < requests and count or requests
      count = count - found
    end
    if target > 0 and ends <= now then
      count = 0
    end
    if count > 0 then
      if ends > last then
        last = ends
      end
      if ends == target then
        joined = count
      elseif ends < target then
        before = before .. pack('<I7I5', ends, count)
      else
        after = after .. pack('<I7I5', ends, count)
      end
    end
  end
  released = released + found
  if target > 0 then
    if joined > 0 or #before + #after < 768 then
      before, found = before .. pack('<I7I5', target, joined + requests), requests
      if target > last then
        last = target
      end
    else
      target, found = expiry, 0
    end
    renewed = renewed .. pack('<i8', target)
  end
  local kept = before .. after
  if found > 0 and kept == '' then
    call('DEL', key)
  elseif found > 0 then
    local till = -floor(-last / 1000) - epoch
    call('SET', key, kept, EXPIRY, till > 0 and till or 1)
  end
end
if renewed ~= '' then
  return renewed
end
return released
