-- SPDX-License-Identifier: Apache-2.0
-- Follows the ask of every limit: counts the requests that the limits deny. The last of `ban_after` denials begins a ban. A
-- request that a ban denies is not counted.
--
-- denials_key  weir:{policy|subject}:denials, a string of 27 bytes: the time of the first denial that counts, in
--              microseconds (8), their number (4), the duration of the last ban (7; 0: it is forgotten) and its end (8)
if granted < wanted and ban_wait == 0 then
  local since, denials, last, ended = now, 0, 0, 0
  local state = try('GET', denials_key)
  if state then
    if #state == 27 then
      since, denials, last, ended = unpack('<I8I4I7I8', state)
    else
      heal(state)
    end
  end
  if denials == 0 or since + ban_window <= now then
    since, denials = now, 0
  elseif since > now then
    since = now
  end
  if ended > now or ended + ban_max <= now then
    -- The last ban was lifted, or it was long ago.
    last = 0
  end
  denials = denials + wanted - granted
  if denials >= ban_after then
    last = min(last * ban_factor, ban_max)
    if last < ban_duration then
      last = ban_duration
    end
    ban_wait, ended, denials = last, now + last, 0
    call('SET', ban_key, ('until %.0f'):format(ended), EXPIRY, -floor(-ended / 1000) - epoch)
  end
  local till = since + ban_window
  if last > 0 and ended + ban_max > till then
    till = ended + ban_max
  end
  state = pack('<I8I4I7I8', since, denials, last, ended)
  call('SET', denials_key, state, EXPIRY, -floor(-till / 1000) - epoch)
end
