-- Fragments are linked inside one another into one script (src/script/link.rs): what one declares, another reads. So a
-- name that crosses from one file to another is named here, and any other name that is not declared is a mistake.
std = "none"
max_line_length = 120
max_comment_line_length = 130

-- Declared by head, and set by the fragments.
globals = { "granted", "rest", "cost", "need" }
read_globals = {
  -- Redis
  "KEYS", "ARGV", "redis", "math", "struct", "error", "tonumber", "type",
  -- prelude, head, muldiv, and the linker's own lines
  "call", "try", "pack", "unpack", "floor", "now", "second", "third", "EXPIRY", "epoch", "heal",
  "muldiv", "key", "at",
  -- what a fragment's ask leaves for `grant`
  "left",
}
-- What every fragment leaves behind for the linker's lines, which reply it.
ignore = { "[23]../left", "[23]../wait", "[23]../reset", "[23]../extra" }

-- These declare for the others, and use little of it themselves.
local declares = { ignore = { "211", "221", "231", "311", "431" } }
files["lua/*.lua"] = declares
files["lua/check/head.lua"] = declares
