-- SPDX-License-Identifier: Apache-2.0
-- Writes the state of a bucket, which has to live until `ahead` microseconds from now. The key expires at the end of that
-- second; if it does already, it keeps its expiry, which costs Redis less than a new one.
ahead = (now + ahead) / 1000000
ahead = ahead - ahead % 1
if ahead == expires then
  -- include overwrite
else
  if ahead ~= last_second then
    -- Redis prints a number with 17 digits, which is slow. Keys of subjects in one check mostly expire together.
    last_second, last_expiry = ahead, ('%.0f'):format((ahead + 1) * 1000 - epoch)
  end
  call('SET', key, state, EXPIRY, last_expiry)
end
