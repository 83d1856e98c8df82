-- SPDX-License-Identifier: Apache-2.0
-- A check for no requests changes nothing in Redis, neither a state nor an expiry: `call` then only reads. Otherwise a check with an older
-- or a newer configuration, or after the clock went back, would correct a state by its own numbers.
local call = call
if granted == 0 then
  local read = call
  call = function(command, ...)
    if command == 'LLEN' or command == 'PTTL' then
      return read(command, ...)
    end
  end
end
