-- SPDX-License-Identifier: Apache-2.0
-- The last expiry that the script has set for the key of a bucket: its second, and the text that `SET` gets.
local last_second, last_expiry = 0, ''
