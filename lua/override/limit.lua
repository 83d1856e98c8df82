-- Overrides: limit.
local count = own(key)
if count then
  limit = count('limit', 1) or limit
end
local first, second, third = limit, 0, 0
