-- Asks every limit of one subject for n requests at once, grants what all of them can, and charges all or
-- none: outside in, each fragment asks and lowers `granted`; inside out, each takes.
--
-- question  requests (here `granted`: all of them, until a fragment knows better); the price of each
-- reply     8 bytes each, packed: how many requests are granted; the time; for each limit the units left
--           (negative: in debt), when one more such request would pass (-1: never), when the limit is whole
--           again, and an extra number whose meaning the fragment states. All times are from now. Then, for
--           each bucket of which something was refunded, how much in all (7 bytes) and the place of the limit
--           in the script, from 0 (1). Of several subjects one such reply each
--
-- A request needs what it costs, but at least one unit: with a cost of 0 it asks for that unit and takes
-- nothing. Every fragment begins with its own `cost` and `need`, which it may change.
local least = price
if least < 1 then
  least = 1
end
local rest, receipts = '', ''
