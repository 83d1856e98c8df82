-- The Lua that Redis runs: 5.1, with nothing but what is named here. `make lint` checks the fragments; a test checks the
-- scripts that the linker makes of them, in which every name must be known.
std = "none"
max_line_length = 110
read_globals = { "KEYS", "ARGV", "redis", "struct", "math", "type", "tonumber", "error", "ipairs" }

-- A script begins with names that not every fragment uses, and a fragment begins with its own of the same name.
ignore = { "21.", "23.", "311", "4.." }

-- What the linker, the prelude and the heads say before a fragment.
local prelude = { "call", "try", "pack", "unpack", "floor", "EXPIRY", "epoch", "heal", "muldiv" }
local question = { "key", "charge", "paid", "paid_left", "paid_reset", "price", "left" }
local parameters = {
  "p", "l", "room", "room_f", "hold", "most", "most_f", "overdraft", "capacity", "refill", "interval",
  "limit", "window", "align", "slot", "slots", "ttl",
}
files["lua"] = { globals = { "now", "granted", "cost", "need" } }
for _, names in ipairs({ prelude, question, parameters }) do
  for _, name in ipairs(names) do
    table.insert(read_globals, name)
  end
end
