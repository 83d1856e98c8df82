-- SPDX-License-Identifier: Apache-2.0
-- Debt: as in `limit`. A sliding_log holds at most 100,000 units, its debt included.
debt = min(debt * limit, 100000 - limit)
