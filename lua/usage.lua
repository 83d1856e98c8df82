-- SPDX-License-Identifier: Apache-2.0
-- Adds what subjects have used to the usage journal. A script of its own, of numbers as text: each worker calls it once in some seconds.
--
-- KEYS[1]  the interval: weir:{journal}:usage:START:LENGTH, in seconds. A hash: for each subject's tag its units and its
--          requests, as text
-- KEYS[2]  the number of the last write of this worker: weir:{journal}:usage:worker:ID
-- KEYS[3]  the intervals that there are, START:LENGTH by START: weir:{journal}:usage
-- ARGV     the number of this write; START and LENGTH; how many seconds an interval is kept after its end; the most
--          subjects; then of each subject its tag, its units and its requests, which are negative where more came back
-- reply    1; 0 if the write was made before
--
-- A write that got no answer is sent again under its number, and counts once. A worker sends the next write only after the answer to this one.
-- A subject that is one too many counts for the others of its policy, whose tag has no subject: {policy}.
local call = redis.call
local number, start, length, keep, most =
  tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if tonumber(call('GET', KEYS[2]) or 0) >= number then
  return 0
end
call('SET', KEYS[2], ARGV[1], 'EX', 3600)
local subjects = call('HLEN', KEYS[1])
if subjects == 0 then
  local now = tonumber(call('TIME')[1])
  call('ZADD', KEYS[3], start, ARGV[2] .. ':' .. ARGV[3])
  call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - keep - length)
  call('EXPIREAT', KEYS[3], now + keep + length)
end
for i = 6, #ARGV, 3 do
  local tag = ARGV[i]
  local used = call('HGET', KEYS[1], tag)
  if not used and subjects >= most then
    tag = tag:match('^{[^|}]*') .. '}'
    used = call('HGET', KEYS[1], tag)
  elseif not used then
    subjects = subjects + 1
  end
  local units, requests = 0, 0
  if used then
    units, requests = used:match('^(-?%d+) (-?%d+)$')
  end
  call('HSET', KEYS[1], tag, ('%.0f %.0f'):format((units or 0) + ARGV[i + 1], (requests or 0) + ARGV[i + 2]))
end
call('EXPIREAT', KEYS[1], start + length + keep)
return 1
