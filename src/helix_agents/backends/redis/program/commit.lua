-- Runs one program: guards, then writes, all at once or not at all.
--
-- A program is flat words, made by program.py: time to live and the two halves of the session's key names ('' outside
-- of sessions), then operations: a name, how many words follow, the words. Keys are places in KEYS; texts are never
-- looked into. When a guard does not hold, nothing has been written and its reason is returned. Guards come first.
-- What a commit means in these words is up to compile.py; without_scripts.py knows the same operations where scripts are forbidden.

local words = #ARGV == 1 and cmsgpack.unpack(ARGV[1]) or ARGV -- packed when there are more than the protocol takes
local call = redis.call
local BATCH = 4000 -- more values at once do not fit on Lua's stack
local SEPARATOR = '\31'
local ttl, head, tail = words[1], words[2], words[3]

-- The first keys of a program that writes a session, in the order of keys.STATIC.
local MAIN, MESSAGES, CUSTOM, ARRAY_KEYS, OBJECT_KEYS, CHECKPOINTS, CHECKPOINT_IDS, UNDO, HISTORY = unpack(KEYS, 1, 9)
local OTHERS = { ':staging', ':runs', ':runs:ids', ':subsession', ':subsession:ids' }
local FAMILIES = { ':customstate:arraykeys', ':customstate:list', ':customstate:objectkeys', ':customstate:object',
  ':history', ':history' }

-- The fields of the main hash that guards and writes look at.
local FIELDS = { 'version', 'status', 'created_at', 'deadline', 'expires_at', 'labels', 'statuses', 'step_count',
  'resume_count', 'error', 'failure_reason', 'interrupt_context', 'interrupt_flag', 'incarnation', 'owner_epoch',
  'agent_type', 'user_id', 'due_at' }

local main, cells = {}, {} -- these fields as they are by now, and those of custom state as they were found
local new, notes = {}, {} -- keys that this program may have made; how to take its changes of custom state back
local removed, turn, moved, answers = 0, 0, 0, {}
local said -- how many messages there are, once that is known

if ttl ~= '' then
  local found = call('HMGET', MAIN, unpack(FIELDS))
  for place = 1, #FIELDS do main[FIELDS[place]] = found[place] end
end

-- Guards

local function holds(mode, found, expected)
  if mode == 'is' then return found == expected end
  if mode == 'absent' then return not found end
  if mode == 'some' then return found end
  if mode == 'below' then return tonumber(found or 0) < tonumber(expected) end
  if mode == 'has' then return found and string.find(found, expected, 1, true) end
  return found and string.find(expected, '|' .. found .. '|', 1, true) -- among
end

-- The fields of a hash that begin so.
local function beginning_with(key, beginning)
  local found, names = call('HKEYS', key), {}
  for place = 1, #found do
    if string.sub(found[place], 1, #beginning) == beginning then names[#names + 1] = found[place] end
  end
  return names
end

local function are(found, first, last)
  if #found ~= last - first + 1 then return false end
  local expected = {}
  for place = first, last do expected[words[place]] = true end
  for place = 1, #found do
    if not expected[found[place]] then return false end
  end
  return true
end

-- Writing

-- RPUSH returns the length, HSET and SADD how many are new: if that is more than was given, the key was there before.
local function make(command, key, ...)
  local answer = call(command, key, ...)
  if answer > 0 and answer <= select('#', ...) then new[key] = true end
  return answer
end

local function push(key, texts, first, last, note)
  local length
  for start = first, last, BATCH do
    length = make('RPUSH', key, unpack(texts, start, math.min(start + BATCH - 1, last)))
  end
  if note ~= '' then notes[#notes + 1] = note .. (length - (last - first + 1)) end
  if key == MESSAGES then said = length end
  return length
end

-- A counter of the session: '+3' is three more than it was, anything else is the new count.
local function counted(field, text)
  if string.byte(text) ~= 43 then
    main[field] = text
  elseif text ~= '+0' then
    main[field] = string.format('%.0f', (main[field] or 0) + text)
  end
  return main[field] or '0'
end

local function count_messages()
  said = said or call('LLEN', MESSAGES)
  return said
end

-- Whether there is a checkpoint to come back to.
local kept
local function remembers()
  if kept == nil then kept = call('LLEN', CHECKPOINTS) > 0 end
  return kept
end

local function log()
  if #notes > 0 and remembers() then push(UNDO, notes, 1, #notes, '') end
  notes = {}
end

-- Free the place of a key of custom state. What older checkpoints need of a list or an object moves to the shelf.
local function clear(field, old, shelf)
  local note = old and 'k' .. SEPARATOR .. field .. SEPARATOR .. old or 'K' .. SEPARATOR .. field
  if old == '[' or old == '{' then
    local is_list = old == '['
    local key = head .. (is_list and ':customstate:list' or ':customstate:object') .. tail .. ':' .. field
    call('SREM', is_list and ARRAY_KEYS or OBJECT_KEYS, field)
    if call('EXISTS', key) == 0 then
      shelf = ''
    elseif remembers() then
      call('RENAME', key, head .. ':history' .. tail .. ':' .. shelf)
      make('SADD', HISTORY, shelf)
    else
      call('UNLINK', key)
    end
    note = (is_list and 'l' or 'o') .. SEPARATOR .. field .. SEPARATOR .. shelf
  end
  notes[#notes + 1] = note
end

-- Change only the items that differ; false when so much differs that a new list is cheaper.
local function patch_list(key, field, first, last)
  local old, changed = call('LRANGE', key, 0, -1), {}
  if #old > last - first + 1 then return false end
  for place = 1, #old do
    if old[place] ~= words[first + place - 1] then changed[#changed + 1] = place end
  end
  if #changed * 2 > #old then return false end
  for _, place in ipairs(changed) do
    notes[#notes + 1] = table.concat({ 'i', field, place - 1, old[place] }, SEPARATOR)
    call('LSET', key, place - 1, words[first + place - 1])
  end
  if first + #old <= last then push(key, words, first + #old, last, 'c' .. SEPARATOR .. field .. SEPARATOR) end
  return true
end

local function patch_object(key, field, first, last)
  local flat, old, changed = call('HGETALL', key), {}, {}
  for place = 1, #flat, 2 do old[flat[place]] = flat[place + 1] end
  local gone = {}
  for member in pairs(old) do gone[member] = true end
  for place = first, last, 2 do
    gone[words[place]] = nil
    if old[words[place]] ~= words[place + 1] then changed[#changed + 1] = place end
  end
  local doomed = {}
  for member in pairs(gone) do doomed[#doomed + 1] = member end
  if (#changed + #doomed) * 4 > #flat then return false end
  local function note(member)
    local text = old[member]
    notes[#notes + 1] = table.concat({ text and 'm' or 'M', field, member, text or nil }, SEPARATOR)
  end
  for _, place in ipairs(changed) do
    note(words[place])
    make('HSET', key, words[place], words[place + 1])
  end
  for _, member in ipairs(doomed) do
    note(member)
    call('HDEL', key, member)
  end
  return true
end

-- pcall: while a cluster moves a slot some keys may be elsewhere; the next time finds them.
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

-- All keys of a session have the same deadline, to the millisecond. It moves for all of them together, and only when
-- that gains a tenth of the time to live; in between a key that was made by this write gets the deadline of the others.
-- With `shrink` it also moves back: a session that waited for somebody was given more time than it needs afterwards.
local function expire(expires_at, shrink)
  local current, now = tonumber(main.deadline), nil
  if current then
    now = current - call('PTTL', MAIN) -- which costs less than asking for the time
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
end

-- One chain instead of a table of functions: those would be made anew for every run, and most are not needed.
local at, count = 4, #words
while at <= count do
  local name, first = words[at], at + 2
  local last = first + words[at + 1] - 1
  local one, two, three, four = words[first], words[first + 1], words[first + 2], words[first + 3]
  local refused
  at = last + 1
  if name == 'field' then -- reason, mode, expected, field
    if not holds(two, main[four], three) then refused = one end
  elseif name == 'cells' then -- key, fields, then as many expected texts: '' absent, '?' anything
    local half = (last - first) / 2
    local found = call('HMGET', KEYS[one + 0], unpack(words, first + 1, first + half))
    for place = 1, half do
      local text, expected = found[place], words[first + half + place]
      if expected ~= '?' and (text or '') ~= expected then refused = 'cells' end
      cells[words[first + place]] = text
    end
  elseif name == 'rows' then -- reason, key, beginning, the fields that must be all that begin so
    if not are(beginning_with(KEYS[two + 0], three), first + 3, last) then refused = one end
  elseif name == 'reply' then -- reason, mode, expected, command, key, the rest of the command
    local found = call(four, KEYS[words[first + 4] + 0], unpack(words, first + 5, last))
    if type(found) == 'number' then found = string.format('%.0f', found) end
    if not holds(two, found, three) then refused = one end
  elseif name == 'call' then -- command, key, the rest
    call(one, KEYS[two + 0], unpack(words, first + 2, last))
  elseif name == 'fields' then -- version, steps, resumes, status ('' is as it was), then other fields with their texts
    if four ~= '' then main.status = four end
    call('HSET', MAIN, 'version', counted('version', one), 'step_count', counted('step_count', two),
      'resume_count', counted('resume_count', three), 'status', main.status, unpack(words, first + 4, last))
  elseif name == 'born' then -- when the session was made, and its incarnation
    main.created_at, main.incarnation = one, two
    call('HSET', MAIN, 'created_at', one, 'incarnation', two)
  elseif name == 'drop' then -- fields of the main hash, of which most are mostly not there
    for place = first, last do
      if main[words[place]] then call('HDEL', MAIN, words[place]) end
    end
  elseif name == 'make' then -- the same for HSET and SADD, which may make the key
    make(one, KEYS[two + 0], unpack(words, first + 2, last))
  elseif name == 'push' then -- key, beginning of a note that ends with the length before, items
    push(KEYS[one + 0], words, first + 2, last, two)
  elseif name == 'note' then -- an entry of the undo log
    notes[#notes + 1] = one
  elseif name == 'unless' then -- field, text: skip the next so many operations if the key holds this ('' is absent)
    if (cells[one] or '') == two then
      for _ = 1, three do at = at + 2 + words[at + 1] end
    end
  elseif name == 'clear' then -- field, shelf
    clear(one, cells[one], two)
  elseif name == 'patch' then -- field, '[' or '{', key, operations to skip if that was enough, items
    local patch = two == '[' and patch_list or patch_object
    if cells[one] == two and patch(KEYS[three + 0], one, first + 4, last) then
      for _ = 1, four do at = at + 2 + words[at + 1] end
    end
  elseif name == 'only' then -- shelf, the fields of custom state that stay
    local stays = {}
    for place = first + 1, last do stays[words[place]] = true end
    local flat = call('HGETALL', CUSTOM)
    for place = 1, #flat, 2 do
      if not stays[flat[place]] then
        clear(flat[place], flat[place + 1], one .. '.' .. place)
        call('HDEL', CUSTOM, flat[place])
      end
    end
  elseif name == 'checkpoint' then -- short id, the rest of the row
    log()
    local facts = { call('LLEN', UNDO), main.version, count_messages(), main.status, main.created_at, main.incarnation, two }
    local number = make('RPUSH', CHECKPOINTS, table.concat(facts, SEPARATOR))
    call('HSET', CHECKPOINT_IDS, one, number)
    if number == 1 then new[CHECKPOINT_IDS] = true end
  elseif name == 'deadline' then -- when the session expires: '' is as stored; '1' if it may then expire earlier
    log()
    expire(one == '' and main.expires_at or one, two)
    count_messages()
  elseif name == 'answer' then -- command, key, the rest
    answers[#answers + 1] = call(one, KEYS[two + 0], unpack(words, first + 2, last))
  elseif name == 'unset' then -- key, beginning of the fields that go
    local key = KEYS[one + 0]
    for _, field in ipairs(beginning_with(key, two)) do removed = removed + call('HDEL', key, field) end
  elseif name == 'cut' then -- key, how many items stay
    removed = removed + math.max(0, call('LLEN', KEYS[one + 0]) - two)
    said = nil
    if two == '0' then call('DEL', KEYS[one + 0]) else call('LTRIM', KEYS[one + 0], 0, two - 1) end
  elseif name == 'recount' then -- checkpoints may have counted messages that are gone: at most so many are left
    for place = -1, -call('LLEN', CHECKPOINTS), -1 do
      local before, counted, behind = call('LINDEX', CHECKPOINTS, place):match('^([^\31]*\31[^\31]*\31)(%d+)(.*)$')
      if tonumber(counted) <= tonumber(one) then break end
      call('LSET', CHECKPOINTS, place, before .. one .. behind)
    end
  elseif name == 'mark' then -- a word that is among the announced statuses from now on
    if not holds('has', main.statuses, one) then call('HSET', MAIN, 'statuses', (main.statuses or '') .. one) end
  elseif name == 'run' then -- list, hash, id, text, turn ('0' is the one after that of the latest run)
    turn = tonumber(words[first + 4])
    local latest = turn == 0 and call('LINDEX', KEYS[one + 0], -1)
    if latest then turn = call('HGET', KEYS[two + 0], latest):match('^%d+') + 1 elseif turn == 0 then turn = 1 end
    make('RPUSH', KEYS[one + 0], three)
    make('HSET', KEYS[two + 0], three, turn .. ':' .. four)
  elseif name == 'ref' then -- list, hash, id, text: enter it, in the list only once
    if make('HSET', KEYS[two + 0], three, four) == 1 then make('RPUSH', KEYS[one + 0], three) end
  elseif name == 'rename' then
    call('RENAME', KEYS[one + 0], KEYS[two + 0])
  elseif name == 'extend' then -- key, milliseconds that it lives at least
    if call('PTTL', KEYS[one + 0]) < tonumber(two) then call('PEXPIRE', KEYS[one + 0], two) end
  elseif name == 'destroy' then
    each_container('UNLINK')
    each_key('UNLINK')
  end
  if refused then return { 0, refused, main.status, main.version, main.created_at } end
end

return { 1, removed, turn, moved, main.version or '0', main.step_count or '0', main.resume_count or '0', said or 0,
  unpack(answers) }
