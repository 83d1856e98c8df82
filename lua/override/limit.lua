-- Overrides: limit.
do
  local count = own(key)
  limit = count and count('limit', 1) or limit
end
