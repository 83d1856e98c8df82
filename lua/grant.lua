-- SPDX-License-Identifier: Apache-2.0
-- Follows the ask of every fragment: lowers `granted` to the requests that fit `left` units, if one request needs `need`
-- and is charged `cost`.
if left < need then
  granted = 0
elseif granted > 1 and cost > 0 then
  local can = floor((left - need) / cost) + 1
  if can < granted then
    granted = can
  end
end
