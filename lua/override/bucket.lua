-- SPDX-License-Identifier: Apache-2.0
-- Overrides: rate and burst, or refill, capacity and overdraft of a token_bucket. They are ignored if the bucket
-- would take more than ten years to fill up, or would let more than 10^12 units wait.
--
-- parameters  after the bucket's own: rate, per, capacity; tokens: 1 for a token_bucket, otherwise 0
do
  local count = override_of(key)
  if count then
    local new_rate, new_capacity, new_overdraft = count('rate', 1), count('burst', 1), nil
    if tokens == 1 then
      new_rate, new_capacity, new_overdraft = count('refill', 1), count('capacity', 1), count('overdraft', 0)
    end
    new_rate, new_capacity = new_rate or rate, new_capacity or capacity
    new_overdraft = new_overdraft or overdraft
    local divisor, remainder = per, new_rate
    while remainder > 0 do
      divisor, remainder = remainder, divisor % remainder
    end
    local new_emission, new_parts = per / divisor, new_rate / divisor
    local new_max, new_max_f = muldiv(new_capacity + new_overdraft, new_emission, 0, new_parts)
    -- If a quotient is too large to be exact, it is above these bounds too.
    local waiting = muldiv(delay_tolerance, new_parts, 0, new_emission)
    if new_max + delay_tolerance <= 316224000000000 and waiting + new_capacity <= 1000000000000 then
      emission, parts = new_emission, new_parts
      rate, capacity, overdraft = new_rate, new_capacity, new_overdraft
      max_owed, max_owed_f = new_max + delay_tolerance, new_max_f
      tolerance, tolerance_f = muldiv(new_capacity, emission, 0, parts)
      tolerance = tolerance + delay_tolerance
    end
  end
end
