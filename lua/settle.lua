-- Charges units after the fact, or gives back what a check charged.
--
-- question  charge: units, negative to give back; paid: the time of the check that charged them, as it
--           replied; then for each limit what that check replied, paid_left, paid_reset, paid_refunded
-- reply     as for a check that grants nothing
--
-- A charge empties a limit at most (a bucket: to its overdraft). Quota is conserved: what has come back by
-- itself since it was paid is not given back a second time, nor what another refund has given back, so no more
-- passes than if what is refunded had never been charged.
local rest, receipts = '', ''
