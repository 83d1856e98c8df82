-- SPDX-License-Identifier: Apache-2.0
-- The same as `max_missing`, for a bucket with a debt: charges may bring it `debt` tokens below zero.
local max_missing = capacity + overdraft + debt
