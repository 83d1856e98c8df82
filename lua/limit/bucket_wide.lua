-- SPDX-License-Identifier: Apache-2.0
-- The same as `bucket`, with the same state, for numbers whose products a double does not hold. A time is a whole
-- number of microseconds and a fraction in parts (`_f`), and products go through `muldiv`.
--
-- parameters  emission, parts; tolerance, tolerance_f; delay_tolerance (whole); max_owed, max_owed_f; overdraft
local owed, owed_f, expires, refunded, changed = 0, 0, 0, 0, false
local cut, needed, cut_part
local state = try('GET', key)
if state then
  if #state == 13 or #state == 20 or #state == 39 then
    -- include load_bucket
    if needed and needed <= max_owed then
      -- include restore_bucket
    elseif needed then
      local most = max_owed
      -- include raise_bucket
    end
    if tat < now then
      -- include idle_bucket
    else
      owed, owed_f = tat - now, part
      if part >= parts then
        owed, owed_f = owed + 1, 0
      end
      if owed > max_owed or owed == max_owed and owed_f > max_owed_f then
        local most = max_owed
        -- include cut_bucket
        owed, owed_f = max_owed, max_owed_f
      end
    end
  else
    heal(state)
  end
end
if overdraft > 0 then
  -- include need_with_overdraft
end
local never = need > muldiv(tolerance - delay_tolerance, parts, tolerance_f, emission)
if never then
  granted = 0
end
local left = muldiv(tolerance - owed, parts, tolerance_f - owed_f, emission)
-- settle
changed = changed or owed > 0 or owed_f > 0 or charge > 0
if charge > 0 then
  local more, more_f = muldiv(charge, emission, owed_f, parts)
  owed, owed_f = owed + more, more_f
  if owed > max_owed or owed == max_owed and owed_f > max_owed_f then
    owed, owed_f = max_owed, max_owed_f
  end
elseif owed > 0 or owed_f > 0 then
  local refund, refund_f = muldiv(-charge, emission, 0, parts)
  -- include refundable_bucket
  if refund >= refundable then
    refund, refund_f = refundable > 0 and refundable or 0, 0
  end
  refunded = (refunded + refund + (refund_f > 0 and 1 or 0)) % 2 ^ 52
  owed, owed_f = owed - refund, owed_f - refund_f
  if owed_f < 0 then
    owed, owed_f = owed - 1, owed_f + parts
  end
  if owed < 0 then
    owed, owed_f = 0, 0
  end
end
left = muldiv(tolerance - owed, parts, tolerance_f - owed_f, emission)
-- take
local extra = 0
if granted > 0 then
  if delay_tolerance > 0 then
    local first, first_f = muldiv(cost, emission, owed_f, parts)
    extra = owed + first + delay_tolerance - tolerance
    if first_f > tolerance_f then
      extra = extra + 1
    end
  end
  if cost > 0 then
    local taken, taken_f = muldiv(granted * cost, emission, owed_f, parts)
    owed, owed_f, changed = owed + taken, taken_f, true
    left = left - granted * cost
  end
end
if changed then
  state = pack('<I8I5', now + owed, owed_f)
  local ahead = owed
  if refunded > 0 then
    local longest = min(ahead + refunded, max_owed)
    -- include store_refunds
  end
  -- include store_bucket
end
local reset, wait = owed, 0
if owed_f > 0 then
  reset = owed + 1
end
if never then
  wait = -1
elseif left < need then
  local span, span_f = muldiv(need, emission, owed_f, parts)
  wait = owed + span - tolerance
  if span_f > tolerance_f then
    wait = wait + 1
  end
end
