-- leaky_bucket and the continuous token_bucket: GCRA (ITU-T I.371 Annex A) in exact fractions of a
-- microsecond.
--
-- key         string, 13 bytes: the time at which the bucket is whole again, in microseconds (8), and a
--             fraction of one beyond it, in parts of 1 / l (5). 20 bytes once something was refunded: then
--             also by how many microseconds that time was moved back in all, modulo 2^52 (7)
-- parameters  p, l: one unit flows in p / l microseconds, in lowest terms. In parts of 1 / l microseconds:
--             room, what may be owed after a request (max_delay included); hold, max_delay alone; most, what
--             may be owed at all. overdraft: units that a request may take in advance
-- extra       when the first request granted may go; negative if it could have gone that much earlier
--
-- Linked only if most + (1 + overdraft) * p < 2^53, so every product below is exact; `bucket_wide` is for the
-- rest.
local owed, till, refunded, changed = 0, 0, 0, false
local state = try('GET', key)
if state then
  if #state == 13 or #state == 20 then
    -- include load_bucket
    if part > l then
      -- Parts of another rate's microsecond: less than one.
      part = l
    end
    owed = (whole - now) * l + part
    if whole < now then
      owed = 0
    elseif owed > most then
      -- The clock went back, or the limit got smaller. Kept even if nothing is granted, or the debt would
      -- stay out of reach for as long as the clock stays behind.
      -- No receipt may take back what was cut off.
      refunded = (refunded + whole - now + 1 - floor(most / l)) % 4503599627370496
      owed, till, changed = most, 0, true
    end
  else
    heal(state)
  end
end
if overdraft > 0 then
  -- include need_with_overdraft
end
if hold > 0 and need * p > room - hold then
  -- More than may ever go at once, held or not.
  granted = 0
end
local left = floor((room - owed) / p)
-- settle
changed = changed or owed > 0 or charge > 0
if charge > 0 then
  owed = owed + charge * p
  if owed > most then
    owed = most
  end
elseif owed > 0 then
  local back = -charge * p
  -- include refundable_bucket
  stays = stays > 0 and stays * l or 0
  if back > stays then
    back = stays
  end
  refunded = (refunded - floor(-back / l)) % 4503599627370496
  owed = owed - back
  if owed < 0 then
    owed = 0
  end
end
left = floor((room - owed) / p)
-- take
local extra = 0
if granted > 0 then
  if hold > 0 then
    extra = -floor((room - hold - owed - cost * p) / l)
  end
  if cost > 0 then
    owed = owed + granted * cost * p
    left = left - granted * cost
    changed = true
  end
end
if changed then
  local whole = floor(owed / l)
  state = pack('<I8I5', now + whole, owed - whole * l)
  if refunded > 0 then
    -- Kept while any receipt may come back.
    state = state .. pack('<I7', refunded)
    till, whole = 0, min(whole + refunded, floor(most / l))
  end
  -- include store_bucket
end
local reset, wait = -floor(-owed / l), 0
if need * p > room - hold then
  wait = -1
elseif left < need then
  wait = -floor((room - owed - need * p) / l)
end
