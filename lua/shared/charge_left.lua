-- SPDX-License-Identifier: Apache-2.0
-- Settles a charge: charges it as one request, at no more than the units left.
granted, cost = 1, charge < left and charge or left > 0 and left or 0
