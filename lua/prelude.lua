-- SPDX-License-Identifier: Apache-2.0
-- Every script begins with this: the time, and how a key expires. All times are microseconds.
--
-- KEYS[i]  the state of limit i: weir:{policy|subject}:limit; for several subjects one after the other
-- ARGV[1]  numbers of 8 bytes each, packed little-endian: the time, or 0 for Redis's own (the clocks of proxies have
--          no effect; a test or a replay brings its time); the question; the parameters of each limit; the questions of the
--          further subjects, unless all share the first one. The linker unpacks them
--
-- Numbers are packed, because text would be printed and parsed on every call, and Lua prints numbers above 10^14 as
-- `1.79e+15`. Lua's numbers are doubles, exact as integers up to 2^53. Limits, capacities and costs are at most 10^12
-- (< 2^40), spans at most ten years (< 2^49), and the time is below 2^51 until 2041 and below 2^53 until 2255, so sums
-- never round. Each fragment says why its products do not round.
--
-- `x - x % 1` is `floor(x)`, and saves a call. It is exact: `x % 1` is rounded only where x is between -1 and 0, by at most 2^-54, and the
-- difference then rounds to -1.
--
-- The linker nests the fragments in straight lines: a closure or a table for each limit would cost as much as a call to
-- Redis.
local call, try = redis.call, redis.pcall
local pack, unpack, floor, min = struct.pack, struct.unpack, math.floor, math.min
local EXPIRY, epoch = 'PXAT', 0
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
else
  -- include grace
end
