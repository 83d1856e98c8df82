-- The most tokens that may be missing.
local max_missing = capacity + overdraft
