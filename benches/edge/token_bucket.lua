-- SPDX-License-Identifier: Apache-2.0
-- What weir replaces, at its best: nginx asks Redis about each request, and each `x-user` has a token bucket there.
-- The comparison favours nginx: the Redis client is a few lines on cosockets instead of lua-resty-redis, the bucket is one
-- number, and what is the same for all requests is built once. Clients get the same headers as from weir.

-- KEYS[1]  the bucket
-- ARGV     the capacity in tokens, the refill in tokens per second
-- Returns how many tokens are left; if there was none, minus the milliseconds until there is one.
-- The state is the time, in microseconds, when the bucket is full.
local script = [[
local capacity, interval = tonumber(ARGV[1]), 1000000 / tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local full = tonumber(redis.call('GET', KEYS[1]) or now)
if full < now then full = now end
local left = math.floor(capacity - (full - now) / interval)
if left < 1 then return -math.ceil((full - now - (capacity - 1) * interval) / 1000) end
full = full + interval
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
return left - 1
]]

local sha = ngx.sha1_bin(script):gsub('.', function(byte) return ('%02x'):format(byte:byte()) end)
local evalsha = '*6\r\n$7\r\nEVALSHA\r\n$40\r\n' .. sha
local eval = '*6\r\n$4\r\nEVAL\r\n$' .. #script .. '\r\n' .. script

-- Calls the script, and returns the first line of the reply.
local function call(socket, command, key, arguments)
  local sent, failure = socket:send(command .. '\r\n$1\r\n1\r\n$' .. #key .. '\r\n' .. key .. arguments)
  if not sent then return nil, failure end
  return socket:receive()
end

local pool = { pool_size = 512 }
local arguments, policy

local limiter = {}

function limiter.check(port, capacity, refill)
  if not arguments then
    arguments = ('\r\n$%d\r\n%d\r\n$%d\r\n%d\r\n'):format(#tostring(capacity), capacity, #tostring(refill), refill)
    policy = ('"tokens";q=%d;w=%d'):format(capacity, math.ceil(capacity / refill))
  end
  local socket = ngx.socket.tcp()
  socket:settimeout(50)
  local reply, failure = socket:connect('127.0.0.1', port, pool)
  if reply then
    local key = 'nginx:' .. (ngx.var.http_x_user or '')
    reply, failure = call(socket, evalsha, key, arguments)
    if reply and reply:find('^-NOSCRIPT') then reply, failure = call(socket, eval, key, arguments) end
  end
  local left = reply and tonumber(reply:match('^:(-?%d+)$'))
  if not left then
    ngx.log(ngx.ERR, 'redis: ', failure or reply)
    return ngx.exit(503)
  end
  socket:setkeepalive(60000)
  local headers = ngx.header
  headers['RateLimit-Policy'] = policy
  if left < 0 then
    headers['RateLimit'] = '"tokens";r=0;t=' .. math.ceil(-left / 1000)
    headers['Retry-After'] = math.ceil(-left / 1000)
    return ngx.exit(429)
  end
  -- The time in which as many tokens come back as are left; after the last token, the time until the next one, which is at
  -- most a second.
  headers['RateLimit'] = ('"tokens";r=%d;t=%d'):format(left, math.ceil(math.max(left, 1) / refill))
end

return limiter
