-- SPDX-License-Identifier: Apache-2.0
-- Asks every limit of a subject for n requests at once, grants as many as all of them can, and charges all limits for
-- those or none. Each fragment asks and lowers `granted`, from the first to the last; then each takes, from the last to
-- the first.
--
-- question  how many requests (`granted`: all of them, until a fragment lowers it); the price of each; where requests are of
--           several classes, how many percent of each limit are kept for others (`kept_percent`)
-- reply     numbers of 8 bytes each, packed: how many requests are granted; the time; for each limit the units left
--           (negative: in debt), when one more such request would pass (-1: never), when the limit is full again, and
--           an extra number that the fragment describes. These times are from now. Then for each bucket with refunds
--           how much was refunded in all (7 bytes) and the place of the limit in the script, from 0 (1)
--           For several subjects: the time; then for each subject how many requests are granted, and for each limit the units left
--           and when it is full again. Then for each limit of a subject of which one of these is not 0: its place among the limits of
--           all subjects (2 bytes), when one more such request would pass, the extra number, and how much was refunded (7 bytes)
--
-- A request needs what it costs, but at least one unit: a request of cost 0 passes if one of cost 1 would, and takes
-- nothing. Every fragment begins with its own `cost` and `need`, which it may change.
local wanted, min_need = granted, price
if min_need < 1 then
  min_need = 1
end
