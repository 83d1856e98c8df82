-- SPDX-License-Identifier: Apache-2.0
-- leaky_bucket and the continuous token_bucket: GCRA, the generic cell rate algorithm (ITU-T I.371 Annex A). The
-- state is the TAT, the theoretical arrival time: the time at which the bucket is full again. `owed` is how far
-- the TAT is ahead of now.
--
-- key         string, 13 bytes: the TAT in whole microseconds (8) and parts of a microsecond (5). 20 bytes after a
--             refund: then also the microseconds by which all refunds moved the TAT back, modulo 2^52 (7). 39 bytes after a
--             larger bucket's TAT was cut off: then also the microseconds of the cut (7), the lead that the TAT had (7), and
--             its parts of a microsecond (5)
-- parameters  parts: the number of parts of a microsecond, so that the emission interval is a whole number of
--             parts. Times in these parts: emission, the emission interval; tolerance, the burst tolerance and the
--             delay tolerance together, which is how far the TAT may be ahead after a request; delay_tolerance,
--             which is max_delay; max_owed, how far the TAT may be ahead at all. overdraft: units that a request may
--             use in advance
-- extra       the time until the first granted request may pass; negative if it could have passed that much earlier
--
-- Linked only if max_owed + (1 + overdraft) * emission < 2^53, so every product below is exact. For larger numbers
-- there is `bucket_wide`. They stay two fragments, because a check costs Redis 2.0 times INCR + PEXPIRE here and 2.5 times
-- there (`make bench-lua`). Code that costs nothing to share is in `lua/shared/`.
local owed, expires, refunded, changed = 0, 0, 0, false
local cut, needed, cut_part
local state = try('GET', key)
if state then
  if #state == 13 or #state == 20 or #state == 39 then
    -- include load_bucket
    if needed and needed * parts <= max_owed then
      -- include restore_bucket
    elseif needed then
      local most = floor(max_owed / parts)
      -- include raise_bucket
    end
    -- A former rate divided the microsecond into more parts: all of them are at most one microsecond.
    owed = (tat - now) * parts + (part > parts and parts or part)
    if tat < now then
      owed = 0
      -- include idle_bucket
    elseif owed > max_owed then
      local most = floor(max_owed / parts)
      -- include cut_bucket
      owed = max_owed
    end
  else
    heal(state)
  end
end
if overdraft > 0 then
  -- include need_with_overdraft
end
-- A request that costs more than the burst never passes, held or not.
local never = need * emission > tolerance - delay_tolerance
if never then
  granted = 0
end
local left = (tolerance - owed) / emission
left = left - left % 1
-- settle
changed = changed or owed > 0 or charge > 0
if charge > 0 then
  owed = owed + charge * emission
  if owed > max_owed then
    owed = max_owed
  end
elseif owed > 0 then
  local refund = -charge * emission
  -- include refundable_bucket
  refundable = refundable > 0 and refundable * parts or 0
  if refund > refundable then
    refund = refundable
  end
  refunded = (refunded - floor(-refund / parts)) % 2 ^ 52
  owed = owed - refund
  if owed < 0 then
    owed = 0
  end
end
left = floor((tolerance - owed) / emission)
-- take
local extra = 0
if granted > 0 then
  if delay_tolerance > 0 then
    extra = -floor((tolerance - delay_tolerance - owed - cost * emission) / parts)
  end
  if cost > 0 then
    owed = owed + granted * cost * emission
    left = left - granted * cost
    changed = true
  end
end
if changed then
  local ahead = owed / parts
  ahead = ahead - ahead % 1
  state = pack('<I8I5', now + ahead, owed - ahead * parts)
  if refunded > 0 then
    local longest = min(ahead + refunded, floor(max_owed / parts))
    -- include store_refunds
  end
  -- include store_bucket
end
local reset, wait = owed / parts, 0
reset = reset + -reset % 1
if never then
  wait = -1
elseif left < need then
  wait = -floor((tolerance - owed - need * emission) / parts)
end
