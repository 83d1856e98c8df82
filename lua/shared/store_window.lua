-- SPDX-License-Identifier: Apache-2.0
-- Charges a fixed window, and writes it. `held` is the expiry that its key has already, if that is known.
local units = granted * cost
left = left - units
if changed or units > 0 then
  state = pack('<I8I6', start, used + units)
  if used + units == 0 then
    call('DEL', key)
  elseif held == start + window then
    -- include overwrite
  else
    call('SET', key, state, EXPIRY, -floor((-start - window) / 1000) - epoch)
  end
end
