-- SPDX-License-Identifier: Apache-2.0
-- Debt: as in `limit`, of a bucket that fills up in steps: at most what comes in ten years.
debt = min(debt * capacity, floor(316224000000000 / interval) * refill - capacity - overdraft)
