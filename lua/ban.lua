-- SPDX-License-Identifier: Apache-2.0
-- Reads the ban of a subject, if it has one. Linked only for policies with a `ban`, before all limits.
--
-- ban_key     weir:{policy|subject}:ban, a string: `until ` and the end of the ban, in microseconds, as the script writes
--             it. Any other string is a ban that an operator has imposed: it lasts until the key expires
-- parameters  ban_after: the number of denials; ban_window: the time for them; ban_duration: the duration of the first ban;
--             ban_factor: the factor of each further ban; ban_max: the maximum duration
-- reply       ban_wait: the remaining time of the ban; 0: the subject is not banned; -1: until the key is deleted
local ban_wait = 0
local banned = try('GET', ban_key)
if banned then
  heal(banned)
  if not banned.err then
    local ends = tonumber(banned:match('^until (%d+)$'))
    if not ends then
      ban_wait = call('PTTL', ban_key)
      -- The key expires after its last millisecond.
      ban_wait = ban_wait < 0 and -1 or min((ban_wait + 1) * 1000, 316224000000000)
    elseif ends > now + ban_max then
      -- The clock went back, or bans are shorter now.
      ban_wait, ends = ban_max, now + ban_max
      call('SET', ban_key, ('until %.0f'):format(ends), EXPIRY, -floor(-ends / 1000) - epoch)
    elseif ends > now then
      ban_wait = ends - now
    end
  end
end
