-- SPDX-License-Identifier: Apache-2.0
-- token_bucket, stepwise: `refill` tokens come at the end of every interval. The first interval begins with the first
-- request that is charged to a full bucket. The state counts tokens; that of `bucket` is a time, so the two share little.
--
-- key         string, 15 bytes: the start of the interval, in microseconds (8), and the number of missing tokens (7),
--             never 0. 22 bytes after a refund: then also the total of refunded tokens, modulo 2^52 (7),
--             and the missing tokens may be 0
-- parameters  capacity, refill, interval, overdraft, debt
-- extra       0
local start, missing, refunded, changed = now, 0, 0, false
-- The most tokens that may be missing. Charges may bring a bucket with a debt `debt` tokens below zero.
local max_missing = capacity + overdraft + debt
local state = try('GET', key)
if state then
  if #state == 15 or #state == 22 then
    local from, count = unpack('<I8I7', state)
    if #state == 22 then
      refunded = unpack('<I7', state, 16)
    end
    if from > now then
      -- The clock went back: the interval begins again. The tokens of the steps that are in the future now count as
      -- refunded, because they will come a second time.
      missing, changed = min(count, max_missing), true
      refunded = (refunded + count - missing + min(-floor((now - from) / interval) * refill, max_missing)) % 2 ^ 52
    else
      local steps = floor((now - from) / interval)
      -- The product is inexact above 2^53, which is far more than can be missing.
      count = count - steps * refill
      if count > 0 then
        start, missing = from + steps * interval, count
      end
    end
    if missing > max_missing then
      -- A larger bucket has counted here. All of it counts, as far as it comes back in ten years: a denial by this one must
      -- not make the larger one forget the requests it has let through.
      missing = min(missing, floor(316224000000000 / interval) * refill)
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
  missing = min(missing + charge, missing > max_missing and missing or max_missing)
elseif missing > 0 then
  -- A refund gives back at most the tokens missing at the grant, less those that the steps have brought since and those
  -- refunded since, to this grant or another.
  local refund = capacity - receipt_left - (refunded - receipt_refunded) % 2 ^ 52
  if start > charged_at then
    refund = refund + floor((charged_at - start) / interval) * refill
  end
  if refund > -charge then
    refund = -charge
  end
  if refund > 0 then
    refunded = (refunded + refund) % 2 ^ 52
    missing = missing - refund
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
    -- The key stays for as long as another grant may be refunded.
    local most = missing > max_missing and missing or max_missing
    local full_at = start - floor(-min(missing + refunded, most) / refill) * interval
    state = pack('<I8I7I7', start, missing, refunded)
    call('SET', key, state, EXPIRY, -floor(-full_at / 1000) - epoch)
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
