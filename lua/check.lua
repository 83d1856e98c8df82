-- SPDX-License-Identifier: Apache-2.0
-- For each subject, asks every limit for n requests at once, grants as many as all of them can, and charges all limits for
-- those or none. Each fragment asks and lowers `granted`, from the first to the last; then each charges, from the last to
-- the first.
--
-- question  for each subject the number of requests (`granted`: all of them, until a fragment lowers it); the price of each; if requests are of
--           several classes, the percentage of each limit that is kept for others (`kept_percent`)
-- reply     numbers of 8 bytes each, packed. For each subject: the number of granted requests; the time; for each limit the
--           units left (negative: in debt), and when the limit is full again. If one of the next three is not 0, they follow,
--           and `reset` is negative, `-1 - reset`: when one more such request would pass (-1: never), an extra number that
--           the fragment describes, and the total that a bucket has refunded. These times are from now
--
-- A request needs its cost, but at least one unit: a request of cost 0 passes if one of cost 1 would, and is charged
-- nothing. Every fragment begins with its own `cost` and `need`, which it may change.
local wanted, min_need = granted, price
if min_need < 1 then
  min_need = 1
end
