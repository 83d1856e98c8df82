-- Follows every ask: lowers `granted` to what `left` units hold of requests that `need` so much and take
-- `cost`.
if left < need then
  granted = 0
elseif granted > 1 and cost > 0 then
  local can = floor((left - need) / cost) + 1
  if can < granted then
    granted = can
  end
end
