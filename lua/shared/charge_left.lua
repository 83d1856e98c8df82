-- SPDX-License-Identifier: Apache-2.0
-- Settles a charge: charges it as one request, at no more than the units left. It may bring a limit with a debt `debt` units below zero.
local room = left + debt
granted, cost = 1, charge < room and charge or room > 0 and room or 0
