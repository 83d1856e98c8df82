-- SPDX-License-Identifier: Apache-2.0
-- For the scripts that `cargo run --example lua` links of the fragments in lua/: what Redis gives a script, as far as
-- weir uses it. Any other name that a script does not declare is a mistake.
std = "none"
read_globals = { "KEYS", "ARGV", "_G", "redis", "math", "struct", "cjson", "error", "ipairs", "pcall", "table", "tonumber", "type" }
max_line_length = false
-- In a linked script, fragments are nested and shadow each other's names, and some do not use all that the prelude and
-- the linker declare and set.
ignore = { "4..", "311", "331" }
local declared_for_all = {
  "call", "try", "pack", "unpack", "floor", "min", "EXPIRY", "epoch", "rest", "cost", "charge",
  "charged_at", "receipt_left", "receipt_reset", "receipt_refunded", "debt", "wanted",
}
for _, name in ipairs(declared_for_all) do
  ignore[#ignore + 1] = "2../" .. name
end
