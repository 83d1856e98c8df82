-- What is stored under a key has the type and size of its algorithm's state, or it counts as nothing and the
-- next grant overwrites it: another type, another algorithm's state, text. A forged value of the right type and
-- size counts as what it spells, until its window ends. Other errors (NOPERM, OOM, READONLY) are the operator's.
local function heal(reply)
  local err = reply.err
  if err and err:sub(1, 9) ~= 'WRONGTYPE' then
    error(reply)
  end
end
