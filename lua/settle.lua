-- Settles a charge: charges more units, or refunds some of what a check charged.
--
-- question  charge: units, negative for a refund. The receipt, which is what the check replied: charged_at, its time;
--           then for each limit receipt_left, receipt_reset and receipt_refunded
-- reply     as for a check that grants nothing
--
-- A charge empties a limit at most (a bucket: to its overdraft), or takes it into debt. Refunds conserve the quota: a refund does not give back
-- what has come back with time since the charge, nor what another refund has given back. So no more passes than if the
-- refunded units had never been charged.
local rest, refunds = '', ''
