-- SPDX-License-Identifier: Apache-2.0
-- Releases permits of `concurrency`. A script of its own, for any number of permits of any policies in one slot.
--
-- KEYS[i]  the state of a concurrency limit; once for each expiry whose permits are released
-- ARGV[1]  numbers of 8 bytes each, packed: the time, or 0 for Redis's own; then for each key the expiry of the
--          permits, which the check replied, and the number to release
-- reply    the number of permits that have been released
--
-- Expired permits are released already. No more permits are released than there are.
local call, pack, unpack, floor = redis.call, struct.pack, struct.unpack, math.floor
local now = unpack('<i8', ARGV[1])
local EXPIRY, epoch = 'PXAT', 0
if now > 0 then
  -- include grace
end
local released = 0
for i, key in ipairs(KEYS) do
  local expiry, requests = unpack('<i8i8', ARGV[1], 16 * i - 7)
  local state = redis.pcall('GET', key)
  if state and state.err and state.err:sub(1, 9) ~= 'WRONGTYPE' then
    return state
  end
  if state and #state <= 768 and #state % 12 == 0 then
    local kept, last, found = '', 0, 0
    for place = 1, #state, 12 do
      local ends, count = unpack('<I7I5', state, place)
      if ends == expiry then
        found = count < requests and count or requests
        count = count - found
      end
      if count > 0 then
        kept = kept .. pack('<I7I5', ends, count)
        if ends > last then
          last = ends
        end
      end
    end
    released = released + found
    if found > 0 and kept == '' then
      call('DEL', key)
    elseif found > 0 then
      local till = -floor(-last / 1000) - epoch
      call('SET', key, kept, EXPIRY, till > 0 and till or 1)
    end
  end
end
return released
