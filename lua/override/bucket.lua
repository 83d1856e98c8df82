-- Overrides: rate, burst; of a token_bucket refill, capacity, overdraft. Unless the bucket would take more
-- than ten years to fill up, or let more than 10^12 units wait.
--
-- parameters  after the bucket's own: rate, per, capacity; tokens: 1 for a token_bucket
local count = own(key)
if count then
  local fast, high, deep = count('rate', 1), count('burst', 1), nil
  if tokens == 1 then
    fast, high, deep = count('refill', 1), count('capacity', 1), count('overdraft', 0)
  end
  fast, high, deep = fast or rate, high or capacity, deep or overdraft
  local divisor, rest_of = per, fast
  while rest_of > 0 do
    divisor, rest_of = rest_of, divisor % rest_of
  end
  local flows, parts = per / divisor, fast / divisor
  local whole, whole_f = muldiv(high + deep, flows, 0, parts)
  -- A quotient too large to be exact is too large.
  if whole + hold <= 316224000000000 and muldiv(hold, parts, 0, flows) + high <= 1000000000000 then
    p, l, rate, capacity, overdraft = flows, parts, fast, high, deep
    most, most_f = whole + hold, whole_f
    room, room_f = muldiv(high, p, 0, l)
    room = room + hold
  end
end
local first, second, third = rate, capacity, overdraft
