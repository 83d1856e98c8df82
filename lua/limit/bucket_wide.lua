-- The same as `bucket`, and the same state, for numbers whose products no double holds: spans are a whole
-- number of microseconds and a fraction in parts of 1 / l (`_f`), and products go through `muldiv`.
--
-- parameters  p, l; room, room_f; hold (whole); most, most_f; overdraft
local owed, owed_f, till, refunded, changed = 0, 0, 0, 0, false
local state = try('GET', key)
if state then
  if #state == 13 or #state == 20 then
    -- include load_bucket
    if whole >= now then
      owed, owed_f = whole - now, part
      if part >= l then
        owed, owed_f = owed + 1, 0
      end
      if owed > most or owed == most and owed_f > most_f then
        refunded = (refunded + whole - now + 1 - most) % 4503599627370496
        owed, owed_f, till, changed = most, most_f, 0, true
      end
    end
  else
    heal(state)
  end
end
if overdraft > 0 then
  -- include need_with_overdraft
end
local burst = muldiv(room - hold, l, room_f, p)
if need > burst then
  granted = 0
end
local left = muldiv(room - owed, l, room_f - owed_f, p)
-- settle
changed = changed or owed > 0 or owed_f > 0 or charge > 0
if charge > 0 then
  local more, more_f = muldiv(charge, p, owed_f, l)
  owed, owed_f = owed + more, more_f
  if owed > most or owed == most and owed_f > most_f then
    owed, owed_f = most, most_f
  end
elseif owed > 0 or owed_f > 0 then
  local back, back_f = muldiv(-charge, p, 0, l)
  -- include refundable_bucket
  if back >= stays then
    back, back_f = stays > 0 and stays or 0, 0
  end
  refunded = (refunded + back + (back_f > 0 and 1 or 0)) % 4503599627370496
  owed, owed_f = owed - back, owed_f - back_f
  if owed_f < 0 then
    owed, owed_f = owed - 1, owed_f + l
  end
  if owed < 0 then
    owed, owed_f = 0, 0
  end
end
left = muldiv(room - owed, l, room_f - owed_f, p)
-- take
local extra = 0
if granted > 0 then
  if hold > 0 then
    local first, first_f = muldiv(cost, p, owed_f, l)
    extra = owed + first + hold - room
    if first_f > room_f then
      extra = extra + 1
    end
  end
  if cost > 0 then
    local taken, taken_f = muldiv(granted * cost, p, owed_f, l)
    owed, owed_f, changed = owed + taken, taken_f, true
    left = left - granted * cost
  end
end
if changed then
  state = pack('<I8I5', now + owed, owed_f)
  local whole = owed
  if refunded > 0 then
    state = state .. pack('<I7', refunded)
    till, whole = 0, min(whole + refunded, most)
  end
  -- include store_bucket
end
local reset, wait = owed, 0
if owed_f > 0 then
  reset = owed + 1
end
if need > burst then
  wait = -1
elseif left < need then
  local span, span_f = muldiv(need, p, owed_f, l)
  wait = owed + span - room
  if span_f > room_f then
    wait = wait + 1
  end
end
