-- Overrides: limit, of a log that keeps every grant.
do
  local count = own(key)
  limit = count and count('limit', 1, 100000) or limit
end
