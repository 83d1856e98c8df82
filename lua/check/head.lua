-- Asks every limit of one subject for n requests at once, grants what all of them can, and charges all or none: outside
-- in, each fragment asks and lowers `granted`; inside out, each takes.
--
-- question  requests; the cost of each
-- reply     8 bytes each, packed: how many requests are granted; the time; for each limit the units left (negative: in
--           debt), when one more such request would pass (-1: never), when the limit is whole again, and an extra
--           number whose meaning the fragment states. All times are from now.
local granted, cost = second, third
local rest = ''
