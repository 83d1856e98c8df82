-- Charges units after the fact, or gives back what a check charged.
--
-- question  charge: units, negative to give back; paid: the time of the check that charged them, as it
--           replied; then for each limit what that check replied, paid_left and paid_reset
-- reply     as for a check that grants nothing
--
-- A charge empties a limit at most (a bucket: to its overdraft). What has come back by itself since it was
-- paid is not given back a second time, so nothing passes that the limits would not have let pass.
local rest = ''
