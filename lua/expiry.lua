-- SPDX-License-Identifier: Apache-2.0
-- The second in which the key of a bucket was last made to expire, and the expiry as text.
local written, expiry = 0, ''
