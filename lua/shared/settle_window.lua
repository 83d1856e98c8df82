-- SPDX-License-Identifier: Apache-2.0
-- Settles a charge or a refund in a fixed window. A refund counts only in the window that was charged.
changed = changed or used > 0
if charge > 0 then
  -- include charge_left
elseif charged_at + receipt_reset == start + window then
  used = used + charge
  if used < 0 then
    used = 0
  end
  left = limit - used
end
