-- SPDX-License-Identifier: Apache-2.0
-- The same as `charge_left`, of a limit that the charge may take `debt` units below zero.
local room = left + debt
granted, cost = 1, charge < room and charge or room > 0 and room or 0
