-- How many whole microseconds of a grant's charge a refund may give back: what has not flowed since the grant, and has
-- not been refunded since. What was owed at the grant is what all receipts until then were charged. After the moment of
-- the grant it is one microsecond less, because the reply was rounded up.
local since = (refunded - paid_refunded) % 4503599627370496
local stays = paid + paid_reset - now - since
if now > paid or since > 0 then
  stays = stays - 1
end
