-- SPDX-License-Identifier: Apache-2.0
-- (a * b + c) / d as an exact quotient and remainder, rounded down, for |a| < 2^49, d < 2^45, |c| < 2^45 and a quotient
-- below 2^53.
--
-- A product that fits a double is divided at once: floor(x / d) is right for every integer x < 2^53, because the true
-- quotient is at least 1 / d below the next integer, more than rounding can bridge. A larger product is divided digit by
-- digit in base 2^7: the remainder (< d) and the next digit's part (<= 127 * d) together stay below d * 2^8 <= 2^53.
local function muldiv(a, b, c, d)
  local x = a * b + c
  if x < 2 ^ 53 and x > -2 ^ 53 then
    local q = floor(x / d)
    return q, x - q * d
  end
  if a < 0 then
    local q, r = muldiv(-a, b, -c, d)
    if r > 0 then
      return -q - 1, d - r
    end
    return -q, 0
  end
  local whole = floor(b / d)
  b = b - whole * d
  local q, r, place = 0, 0, 2 ^ 42
  while place >= 1 do
    local digit = floor(a / place) % 128
    x = r * 128 + digit * b
    local part = floor(x / d)
    q, r, place = q * 128 + part, x - part * d, place / 128
  end
  local carry = floor((r + c) / d)
  return q + carry + a * whole, r + c - carry * d
end
