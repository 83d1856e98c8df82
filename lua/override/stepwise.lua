-- SPDX-License-Identifier: Apache-2.0
-- Overrides: refill, capacity and overdraft. They are ignored if the bucket would take more than ten years to fill up.
do
  local count = override_of(key)
  if count then
    local new_refill, new_capacity, new_overdraft = count('refill', 1), count('capacity', 1), count('overdraft', 0)
    new_refill, new_capacity = new_refill or refill, new_capacity or capacity
    new_overdraft = new_overdraft or overdraft
    if -floor(-(new_capacity + new_overdraft) / new_refill) * interval <= 316224000000000 then
      refill, capacity, overdraft = new_refill, new_capacity, new_overdraft
    end
  end
end
