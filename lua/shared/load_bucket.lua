-- Reads the state of a bucket.
local whole, part = unpack('<I8I5', state)
if #state == 13 then
  till = floor(whole / 1000000)
else
  refunded = unpack('<I7', state, 14)
end
