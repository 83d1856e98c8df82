-- Overrides: refill, capacity, overdraft, unless the bucket would take more than ten years to fill up.
local count = own(key)
if count then
  local fast, high, deep = count('refill', 1), count('capacity', 1), count('overdraft', 0)
  fast, high, deep = fast or refill, high or capacity, deep or overdraft
  if -floor(-(high + deep) / fast) * interval <= 316224000000000 then
    refill, capacity, overdraft = fast, high, deep
  end
end
local first, second, third = refill, capacity, overdraft
