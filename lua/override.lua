-- Lets a subject have limits of its own, in Redis, changed without a new configuration. Linked only for
-- policies that say so.
--
-- owned  the subject's last key, weir:{policy|subject}:override. A string, JSON, such as
--        {"minute": {"limit": 1000}}: for each limit the counts that replace the configured ones; its windows,
--        intervals and delays stay
--
-- What is no JSON, no whole number in bounds, or a name that no limit has, is as if it were not there:
-- whoever writes the key cannot break the policy. The reply says of each limit the counts in force.
local overrides = try('GET', owned)
if overrides then
  heal(overrides)
  local sane, value = pcall(cjson.decode, overrides)
  overrides = sane and type(value) == 'table' and value
end

-- The counts that replace a limit's; nil if none do.
local function own(key)
  local counts = overrides and overrides[key:match('[^:]*$')]
  if type(counts) == 'table' then
    return function(name, least, most)
      local count = counts[name]
      if type(count) == 'number' and count >= least and count <= (most or 1000000000000) and count % 1 == 0 then
        return count
      end
    end
  end
end
