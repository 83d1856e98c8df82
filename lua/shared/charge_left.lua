-- SPDX-License-Identifier: Apache-2.0
-- Settles a charge: takes it as one request that costs no more than what is left.
granted, cost = 1, charge < left and charge or left > 0 and left or 0
