-- SPDX-License-Identifier: Apache-2.0
-- A value that is not a state of the fragment's algorithm counts as no state, and the next grant overwrites it: a value
-- of another type or size, another algorithm's state, text. A forged value of the right type and size counts until its
-- window ends. All other errors (NOPERM, OOM, READONLY) are the script's reply: they need an operator.
local function heal(reply)
  local err = reply.err
  if err and err:sub(1, 9) ~= 'WRONGTYPE' then
    -- Before version 7, Redis accepts only a string as an error.
    error(redis.REDIS_VERSION and reply or err)
  end
end
