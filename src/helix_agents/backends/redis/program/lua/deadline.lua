-- How long the keys of a session live.

-- pcall: while a cluster moves a slot, some keys may be elsewhere; the next write finds them.
local function each_key(command, ...)
  for place = 1, 9 do redis.pcall(command, KEYS[place], ...) end
  for _, part in ipairs(OTHERS) do redis.pcall(command, head .. part .. tail, ...) end
end

local function each_container(command, ...)
  for place = 1, #FAMILIES, 2 do
    local family = head .. FAMILIES[place + 1] .. tail .. ':'
    local names = call('SMEMBERS', head .. FAMILIES[place] .. tail)
    for _, name in ipairs(names) do redis.pcall(command, family .. name, ...) end
  end
end

-- Data of other stores in the session's slot expires with it: its usage, and its stream unless that expires earlier.
local function expire_companions(deadline)
  local prefix = string.sub(head, 1, -#':session' - 1)
  redis.pcall('PEXPIREAT', prefix .. ':usage:entries' .. tail, deadline)
  local until_ = redis.pcall('HGET', prefix .. ':stream:meta' .. tail, 'kept_until')
  until_ = type(until_) == 'string' and math.min(tonumber(until_), tonumber(deadline)) or tonumber(deadline)
  for _, part in ipairs({ ':stream:meta', ':stream', ':stream:producers' }) do
    redis.pcall('PEXPIREAT', prefix .. part .. tail, string.format('%.0f', until_))
  end
end

-- All keys of a session have the same deadline, to the millisecond. It moves for all of them together, and only when
-- that gains a tenth of the time to live; otherwise a key that this write creates gets the deadline of the others.
-- With `shrink` it also moves back: a session that waited for a person had more time than it needs afterwards.
local function expire(expires_at, shrink)
  local current, now = tonumber(main.deadline), nil
  if current then
    now = current - call('PTTL', MAIN) -- cheaper than the TIME command
  else
    local time = call('TIME')
    current, now = 0, time[1] * 1000 + math.floor(time[2] / 1000)
  end
  local best = math.max(now, tonumber(expires_at) or 0) + ttl
  if best - current < ttl / 10 and not (shrink == '1' and current - best > 0 + ttl) then
    for key in pairs(new) do call('PEXPIREAT', key, main.deadline) end
    return
  end
  moved = 1
  local deadline = string.format('%.0f', best)
  call('HSET', MAIN, 'deadline', deadline)
  each_container('PEXPIREAT', deadline)
  each_key('PEXPIREAT', deadline)
  expire_companions(deadline)
end
