-- SPDX-License-Identifier: Apache-2.0
-- Adds the usage of subjects to the usage journal. A script of its own, of numbers as text: each worker calls it once in some seconds.
--
-- KEYS[1]  the interval: weir:{journal}:usage:START:LENGTH, in seconds. A hash: for each subject's tag its units and its
--          requests, as text
-- KEYS[2]  the number of the last write of this worker: weir:{journal}:usage:worker:ID
-- KEYS[3]  the existing intervals, START:LENGTH, by the expiry of each: weir:{journal}:usage. 2^40 is added to
--          these scores, because version 0.1.0 wrote START as the score
-- ARGV     the number of this write; START and LENGTH; the seconds for which an interval is kept after its end; the most
--          subjects; then for each subject its tag, its units and its requests, which are negative if more were refunded
-- reply    1; 0 if the write was made before
--
-- A write that got no answer is sent again under its number, and counts once. A worker sends the next write only after the answer to this
-- one. A subject that is one too many counts for the others of its policy, whose tag has no subject: {policy}.
--
-- Redis keeps what a script has written before a command that fails. So one command adds all usage, the number follows it, and each
-- command that this needs is called before in a way that changes nothing: a user of Redis may lack the right to one of them.
--
-- Configurations with another interval or `keep` may write to the same journal: nothing expires earlier because of them.
local call, ceil = redis.call, math.ceil
local number, start, length, keep, most =
  tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local last = tonumber(call('GET', KEYS[2]) or 0) or 0
if last >= number then
  return 0
end
local now = tonumber(call('TIME')[1])
local expires = math.max(start + length + keep, now + ceil(call('PTTL', KEYS[1]) / 1000))
local subjects = call('HLEN', KEYS[1])
local sums, fields = {}, {}
for i = 6, #ARGV, 3 do
  local tag = ARGV[i]
  local used = sums[tag] or call('HGET', KEYS[1], tag)
  if not used and subjects >= most then
    tag = tag:match('^{[^|}]*') .. '}'
    used = sums[tag] or call('HGET', KEYS[1], tag)
  elseif not used then
    subjects = subjects + 1
  end
  local units, requests = 0, 0
  if used then
    units, requests = used:match('^(-?%d+) (-?%d+)$')
  end
  sums[tag] = ('%.0f %.0f'):format((units or 0) + ARGV[i + 1], (requests or 0) + ARGV[i + 2])
end
for tag, used in pairs(sums) do
  fields[#fields + 1] = tag
  fields[#fields + 1] = used
end
if call('ZADD', KEYS[3], 2 ^ 40 + expires, ARGV[2] .. ':' .. ARGV[3]) == 1 then
  call('ZREMRANGEBYSCORE', KEYS[3], 2 ^ 40, 2 ^ 40 + now)
  -- 400 days is the longest `keep`.
  call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - 401 * 86400)
end
call('EXPIREAT', KEYS[3], math.max(expires, now + ceil(call('PTTL', KEYS[3]) / 1000)))
call('SET', KEYS[2], last, 'EX', 86400)
call('HSET', KEYS[1], unpack(fields))
call('SET', KEYS[2], ARGV[1], 'EX', 86400)
call('EXPIREAT', KEYS[1], expires)
return 1
