-- For the scripts that `cargo run --example lua` links of the fragments in lua/: what Redis gives a script, as far as
-- weir uses it. Any other name that a script does not declare is a mistake.
std = "none"
read_globals = { "KEYS", "ARGV", "_G", "redis", "math", "struct", "cjson", "error", "ipairs", "pcall", "tonumber", "type" }
max_line_length = false
-- Linked, fragments lie inside one another and shadow each other's names; and what the prelude and the linker declare
-- and set for all, some have no use for.
ignore = { "4..", "311", "331" }
for _, name in ipairs({ "call", "try", "pack", "unpack", "floor", "EXPIRY", "epoch", "rest", "cost", "paid", "charge", "paid_left", "paid_reset", "paid_refunded", "min" }) do
  ignore[#ignore + 1] = "2../" .. name
end
