-- SPDX-License-Identifier: Apache-2.0
-- Asks every limit of a subject for n requests at once, grants as many as all of them can, and charges all limits for
-- those or none. Each fragment asks and lowers `granted`, from the first to the last; then each charges, from the last to
-- the first.
--
-- question  the number of requests (`granted`: all of them, until a fragment lowers it); the price of each; if requests are of
--           several classes, the percentage of each limit that is kept for others (`kept_percent`)
-- reply     numbers of 8 bytes each, packed: the number of granted requests; the time; for each limit the units left
--           (negative: in debt), when one more such request would pass (-1: never), when the limit is full again, and
--           an extra number that the fragment describes. These times are from now. Then for each bucket with refunds
--           the total that was refunded (7 bytes) and the place of the limit in the script, from 0 (1)
--           For several subjects: the time; then for each subject the number of granted requests, and for each limit the units left
--           and when it is full again. Then for each limit with one of these not 0: its place among the limits of all subjects
--           (2 bytes), when one more such request would pass, the extra number, and the total that was refunded (7 bytes)
--
-- A request needs its cost, but at least one unit: a request of cost 0 passes if one of cost 1 would, and is charged
-- nothing. Every fragment begins with its own `cost` and `need`, which it may change.
local wanted, min_need = granted, price
if min_need < 1 then
  min_need = 1
end
