-- Gives back places of `concurrency`. A script of its own, for any number of leases of any policies of one
-- slot.
--
-- KEYS[i]  the state of a concurrency limit; as often as it has different leases to release
-- ARGV[1]  numbers of 8 bytes each, packed: the time, or 0 for Redis's own (only to count an hour of grace
--          from, as in the prelude); then for each key the end of the lease, which the check replied, and how
--          many places to release
-- reply    how many places have been released
--
-- A lease that has ended has released its places; what is not leased is not released.
local call, pack, unpack, floor = redis.call, struct.pack, struct.unpack, math.floor
local now = unpack('<i8', ARGV[1])
local EXPIRY, epoch = 'PXAT', 0
if now > 0 then
  -- include grace
end
local released = 0
for i, key in ipairs(KEYS) do
  local lease, places = unpack('<i8i8', ARGV[1], 16 * i - 7)
  local state = redis.pcall('GET', key)
  if state and state.err and state.err:sub(1, 9) ~= 'WRONGTYPE' then
    return state
  end
  if state and #state % 12 == 0 then
    local kept, last, found = '', 0, 0
    for place = 1, #state, 12 do
      local till, count = unpack('<I7I5', state, place)
      if till == lease then
        found = count < places and count or places
        count = count - found
      end
      if count > 0 then
        kept = kept .. pack('<I7I5', till, count)
        if till > last then
          last = till
        end
      end
    end
    released = released + found
    if found > 0 and kept == '' then
      call('DEL', key)
    elseif found > 0 then
      local expiry = -floor(-last / 1000) - epoch
      call('SET', key, kept, EXPIRY, expiry > 0 and expiry or 1)
    end
  end
end
return released
