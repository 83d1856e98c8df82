-- SPDX-License-Identifier: Apache-2.0
-- Writes the state of a bucket, which has to live until `ahead` microseconds from now. The key expires at the end of that
-- second; if it does already, it keeps its expiry, which costs Redis less than a new one.
ahead = floor((now + ahead) / 1000000)
if ahead == expires then
  call('SET', key, state, 'KEEPTTL')
else
  call('SET', key, state, EXPIRY, (ahead + 1) * 1000 - epoch)
end
