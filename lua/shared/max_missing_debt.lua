-- SPDX-License-Identifier: Apache-2.0
-- The same as `max_missing`, of a bucket that charges may take `debt` tokens below zero.
local max_missing = capacity + overdraft + debt
