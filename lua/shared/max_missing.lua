-- SPDX-License-Identifier: Apache-2.0
-- The most tokens that may be missing.
local max_missing = capacity + overdraft
