-- token_bucket, stepwise: `refill` tokens at the end of every interval. The first interval begins with the
-- first request that takes from a full bucket.
--
-- key         string, 15 bytes: the start of the interval, in microseconds (8), and the tokens missing (7),
--             never 0. 22 bytes once something was refunded: then also how many tokens in all, modulo 2^52
--             (7), and none may be missing
-- parameters  capacity, refill, interval, overdraft
-- extra       0
local start, missing, refunded, changed = now, 0, 0, false
local most = capacity + overdraft
local state = try('GET', key)
if state then
  if #state == 15 or #state == 22 then
    local from, count = unpack('<I8I7', state)
    if #state == 22 then
      refunded = unpack('<I7', state, 16)
    end
    if from > now then
      -- The clock went back: the interval begins anew. No receipt may take back what came in the steps that
      -- have not yet been now.
      missing, changed = count, true
      refunded = (refunded + min(-floor((now - from) / interval) * refill, most)) % 4503599627370496
    else
      local steps = floor((now - from) / interval)
      -- Inexact above 2^53, but then far more than can be missing.
      count = count - steps * refill
      if count > 0 then
        start, missing = from + steps * interval, count
      end
    end
    if missing > most then
      refunded = (refunded + missing - most) % 4503599627370496
      missing, changed = most, true
    end
  else
    heal(state)
  end
end
-- include need_with_overdraft
local left = capacity - missing
-- settle
changed = changed or missing > 0 or charge > 0
if charge > 0 then
  missing = missing + charge
  if missing > most then
    missing = most
  end
elseif missing > 0 then
  -- At most what was missing then, less what the steps since brought and what was refunded since, of this
  -- receipt or another: what was missing then is what all of them were charged.
  local back = capacity - paid_left - (refunded - paid_refunded) % 4503599627370496
  if start > paid then
    back = back + floor((paid - start) / interval) * refill
  end
  if back > -charge then
    back = -charge
  end
  if back > 0 then
    refunded = (refunded + back) % 4503599627370496
    missing = missing - back
    if missing < 0 then
      missing = 0
    end
  end
end
left = capacity - missing
-- take
local units = granted * cost
left, missing = left - units, missing + units
local reset = 0
if missing > 0 then
  reset = start - now - floor(-missing / refill) * interval
end
if changed or units > 0 then
  if refunded > 0 then
    -- Kept while any receipt may come back.
    local whole = start - floor(-min(missing + refunded, most) / refill) * interval
    state = pack('<I8I7I7', start, missing, refunded)
    call('SET', key, state, EXPIRY, -floor(-whole / 1000) - epoch)
  elseif missing > 0 then
    call('SET', key, pack('<I8I7', start, missing), EXPIRY, -floor((-now - reset) / 1000) - epoch)
  else
    call('DEL', key)
  end
end
local wait, extra = 0, 0
if left < need then
  wait = need > capacity and -1 or start - now - floor((left - need) / refill) * interval
end
