-- SPDX-License-Identifier: Apache-2.0
-- Reads a subject's own counts, which an operator writes into Redis. Linked only for policies with `overrides: true`.
--
-- override_key  the subject's last key, weir:{policy|subject}:override. A string of JSON, such as
--               {"minute": {"limit": 1000}}: for each limit the counts that replace the configured ones. Windows,
--               intervals and delays stay as configured
--
-- Everything else is ignored: other JSON, other names, numbers that are not whole or out of bounds. So a wrong value
-- in this key does not disturb the policy. The reply has the counts in force of each limit.
local overrides = try('GET', override_key)
if overrides then
  heal(overrides)
  local sane, value = pcall(cjson.decode, overrides)
  overrides = sane and type(value) == 'table' and value
end

-- Reads the counts that replace those of a limit; nil if there are none.
local function override_of(key)
  local counts = overrides and overrides[key:match('[^:]*$')]
  if type(counts) == 'table' then
    return function(name, lowest, highest)
      local count = counts[name]
      if type(count) == 'number' and count >= lowest and count <= (highest or 1000000000000) and count % 1 == 0 then
        return count
      end
    end
  end
end
