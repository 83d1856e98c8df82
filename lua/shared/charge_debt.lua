-- SPDX-License-Identifier: Apache-2.0
-- The same as `charge_left`, for a limit with a debt: a charge may bring it `debt` units below zero.
local room = left + debt
granted, cost = 1, charge < room and charge or room > 0 and room or 0
