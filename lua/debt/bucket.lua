-- SPDX-License-Identifier: Apache-2.0
-- Debt: as in `limit`, of a bucket whose subjects may have counts of their own. Others need no Lua for it: their `max_owed`
-- contains it.
--
-- max_owed is without the debt until here. The bucket flows back within ten years.
if max_owed < 316224000000000 then
  local units = debt * muldiv(tolerance, parts, tolerance_f, emission)
  local more, more_f = muldiv(units, emission, max_owed_f, parts)
  max_owed, max_owed_f = max_owed + more, more_f
  if max_owed >= 316224000000000 then
    max_owed, max_owed_f = 316224000000000, 0
  end
end
