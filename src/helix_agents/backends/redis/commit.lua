-- Runs one program: guards, then effects, all at once or not at all.
--
-- A program is data made by program.py: { session, guards, effects, wanted }. Keys are given as places in KEYS, texts are
-- never looked into. If a guard does not hold, nothing is written and its reason is answered. The same programs are run
-- by multi.py where scripts are forbidden; whatever changes here changes there.

local session, guards, effects, wanted = unpack(cmsgpack.unpack(ARGV[1]))
local call = redis.call
local BATCH = 4000 -- more values at once do not fit on Lua's stack
local SEPARATOR = '\31'

-- The first keys of a program that writes a session are always these, in this order.
local MESSAGES, CUSTOM, ARRAY_KEYS, OBJECT_KEYS, CHECKPOINTS = 2, 3, 4, 5, 6
local UNDO, HISTORY, STAGING, STATIC_COUNT = 8, 9, 10, 14

-- What is there --------------------------------------------------------------------------------------------------------

-- The main hash and the cells of custom state that the program speaks of are read once, at the beginning.
local FIELDS = {
  'version', 'status', 'created_at', 'deadline', 'expires_at', 'labels', 'statuses', 'step_count', 'resume_count',
  'restores', 'error', 'failure_reason', 'interrupt_context', 'interrupt_flag',
}
local main, cells = {}, {}

local function look(key, names, into)
  for start = 1, #names, BATCH do
    local found = call('HMGET', key, unpack(names, start, math.min(start + BATCH - 1, #names)))
    for place = 1, #found do into[names[start + place - 1]] = found[place] end
  end
end

if session then
  look(KEYS[1], FIELDS, main)
  if session.cells then look(KEYS[CUSTOM], session.cells, cells) end
end

-- Guards -----------------------------------------------------------------------------------------------------------

-- The staged rows whose names begin so.
local function staged(beginning)
  local found, names = call('HKEYS', KEYS[STAGING]), {}
  for place = 1, #found do
    if string.sub(found[place], 1, #beginning) == beginning then names[#names + 1] = found[place] end
  end
  return names
end

local function same(found, expected)
  local wanted_names = {}
  if #found ~= #expected then return false end
  for place = 1, #expected do wanted_names[expected[place]] = true end
  for place = 1, #found do
    if not wanted_names[found[place]] then return false end
  end
  return true
end

-- One chain instead of a table of functions: functions would be made anew for every run, and most are not needed.
local function holds(g)
  local kind, expected = g[1], g[3]
  if kind == 'field' then return main[g[4]] == expected end
  if kind == 'cell' then return cells[g[4]] == expected end
  if kind == 'exists' then return (main.version ~= false) == expected end
  if kind == 'field has' then return main[g[4]] and string.find(main[g[4]], expected, 1, true) ~= nil end
  if kind == 'staged' then return same(staged(g[4]), expected) end
  if kind == '=' then return call(g[4], KEYS[g[5]], unpack(g, 6)) == expected end
  for place = 1, #expected do
    if main[g[4]] == expected[place] then return true end
  end
  return false
end

for place = 1, #guards do
  local guard = guards[place]
  if not holds(guard) then return { 0, guard[2], main.status, main.version, main.created_at } end
end

-- Writing ----------------------------------------------------------------------------------------------------------

local new = {} -- keys that may not have existed before and so have no deadline yet

-- RPUSH answers the length, HSET and SADD how many are new: if that is more than was given, the key was there before.
local function create(command, key, ...)
  local answer = call(command, key, ...)
  if answer > 0 and answer <= select('#', ...) then new[key] = true end
  return answer
end

local function push(key, texts, first)
  local length = 0
  for start = first or 1, #texts, BATCH do
    length = create('RPUSH', key, unpack(texts, start, math.min(start + BATCH - 1, #texts)))
  end
  return length
end

local function name(part, suffix)
  return session.head .. part .. session.tail .. (suffix or '')
end

-- Custom state, and how to take a change back ------------------------------------------------------------------------

local undo, keeps_history = {}, nil

local function remembers()
  if keeps_history == nil then keeps_history = call('LLEN', KEYS[CHECKPOINTS]) > 0 end
  return keeps_history
end

local function note(...)
  if remembers() then undo[#undo + 1] = table.concat({ ... }, SEPARATOR) end
end

-- Take a list or an object out of use: moved to the shelf for older checkpoints, or dropped. Answers its name there.
local function shelve(registry, field, key, shelf_name)
  call('SREM', registry, field)
  if call('EXISTS', key) == 0 then return '' end
  if not remembers() then
    call('UNLINK', key)
    return ''
  end
  call('RENAME', key, name(':history', ':' .. shelf_name))
  create('SADD', KEYS[HISTORY], shelf_name)
  return shelf_name
end

local function list_of(field) return name(':customstate:list', ':' .. field) end

local function object_of(field) return name(':customstate:object', ':' .. field) end

-- Remove what is under a top-level key and note it. The place for a new value is then free.
local function clear(field, old, shelf_name)
  if old == '[' then
    note('l', field, shelve(KEYS[ARRAY_KEYS], field, list_of(field), shelf_name))
  elseif old == '{' then
    note('o', field, shelve(KEYS[OBJECT_KEYS], field, object_of(field), shelf_name))
  elseif old then
    note('k', field, old)
  else
    note('K', field)
  end
end

local function set_list(field, list, items)
  create('HSET', KEYS[CUSTOM], field, '[')
  create('SADD', KEYS[ARRAY_KEYS], field)
  push(list, items)
end

local function set_object(field, object, members)
  create('HSET', KEYS[CUSTOM], field, '{')
  create('SADD', KEYS[OBJECT_KEYS], field)
  for start = 1, #members, BATCH do
    create('HSET', object, unpack(members, start, math.min(start + BATCH - 1, #members)))
  end
end

local function append(field, list, items, first)
  local length = push(list, items, first)
  note('c', field, length - (#items - (first or 1) + 1))
end

-- Change only the items that differ; false if so much differs that a new list is cheaper.
local function patch_list(field, list, items)
  local old = call('LRANGE', list, 0, -1)
  if #old > #items then return false end
  local changed = {}
  for place = 1, #old do
    if old[place] ~= items[place] then changed[#changed + 1] = place end
  end
  if #changed * 2 > #old then return false end
  for _, place in ipairs(changed) do
    note('i', field, place - 1, old[place])
    call('LSET', list, place - 1, items[place])
  end
  if #items > #old then append(field, list, items, #old + 1) end
  return true
end

local function set_member(field, object, member, text, old)
  if old then note('m', field, member, old) else note('M', field, member) end
  create('HSET', object, member, text)
end

local function patch_object(field, object, members)
  local flat, old, wanted_members, changes = call('HGETALL', object), {}, {}, 0
  for place = 1, #flat, 2 do old[flat[place]] = flat[place + 1] end
  for place = 1, #members, 2 do
    wanted_members[members[place]] = true
    if old[members[place]] ~= members[place + 1] then changes = changes + 1 end
  end
  for member in pairs(old) do
    if not wanted_members[member] then changes = changes + 1 end
  end
  if changes * 4 > #flat then return false end
  for place = 1, #members, 2 do
    local member, text = members[place], members[place + 1]
    if old[member] ~= text then set_member(field, object, member, text, old[member]) end
  end
  for member, text in pairs(old) do
    if not wanted_members[member] then
      note('m', field, member, text)
      call('HDEL', object, member)
    end
  end
  return true
end

-- Effects ----------------------------------------------------------------------------------------------------------

local removed, turn, undo_length, message_count = 0, 0, nil, nil

local function flush_undo()
  if #undo > 0 then undo_length = push(KEYS[UNDO], undo) end
  undo = {}
end

-- Keys --------------------------------------------------------------------------------------------------------

local function every_key()
  local keys = {}
  for place = 1, STATIC_COUNT do keys[place] = KEYS[place] end
  local families = {
    [ARRAY_KEYS] = ':customstate:list', [OBJECT_KEYS] = ':customstate:object', [HISTORY] = ':history',
  }
  for registry, family in pairs(families) do
    for _, each in ipairs(call('SMEMBERS', KEYS[registry])) do keys[#keys + 1] = name(family, ':' .. each) end
  end
  return keys
end

local function run(e)
  local kind = e[1]
  if kind == 'messages' then
    message_count = push(KEYS[MESSAGES], e, 2)
  elseif kind == 'text' then
    local old = cells[e[2]]
    if old == e[4] then return end
    clear(e[2], old, e[3])
    create('HSET', KEYS[CUSTOM], e[2], e[4])
  elseif kind == 'append' then
    append(e[2], KEYS[e[3]], e[4])
  elseif kind == 'unstage' then
    for _, field in ipairs(staged(e[2])) do removed = removed + call('HDEL', KEYS[STAGING], field) end
  elseif kind == 'checkpoint' then
    flush_undo()
    if not undo_length then undo_length = call('LLEN', KEYS[UNDO]) end
    if not message_count then message_count = call('LLEN', KEYS[MESSAGES]) end
    local facts = { undo_length, main.version, message_count, main.status, main.created_at, e[3] }
    local number = create('RPUSH', KEYS[CHECKPOINTS], table.concat(facts, SEPARATOR))
    call('HSET', KEYS[e[4]], e[2], number)
    if number == 1 then new[KEYS[e[4]]] = true end
  elseif kind == 'stage' then
    for _, field in ipairs(staged(e[2])) do call('HDEL', KEYS[STAGING], field) end -- staged again: replaced
    create('HSET', KEYS[STAGING], e[2] .. e[3], e[4])
  elseif kind == 'member' then
    set_member(e[2], KEYS[e[3]], e[4], e[5], call('HGET', KEYS[e[3]], e[4]))
  elseif kind == 'item' then
    note('i', e[2], e[4], call('LINDEX', KEYS[e[3]], e[4]))
    call('LSET', KEYS[e[3]], e[4], e[5])
  elseif kind == 'list' then
    local old = cells[e[2]]
    if old == '[' and patch_list(e[2], list_of(e[2]), e[4]) then return end
    clear(e[2], old, e[3])
    set_list(e[2], list_of(e[2]), e[4])
  elseif kind == 'object' then
    local old = cells[e[2]]
    if old == '{' and patch_object(e[2], object_of(e[2]), e[4]) then return end
    clear(e[2], old, e[3])
    set_object(e[2], object_of(e[2]), e[4])
  elseif kind == 'drop' then
    local old = cells[e[2]]
    if not old then return end
    clear(e[2], old, e[3])
    call('HDEL', KEYS[CUSTOM], e[2])
  elseif kind == 'unmember' then
    local old = call('HGET', KEYS[e[3]], e[4])
    if not old then return end
    note('m', e[2], e[4], old)
    call('HDEL', KEYS[e[3]], e[4])
  elseif kind == 'only' then
    local kept = {}
    for _, field in ipairs(e[2]) do kept[field] = true end
    local flat = call('HGETALL', KEYS[CUSTOM])
    for place = 1, #flat, 2 do
      local field = flat[place]
      if not kept[field] then
        clear(field, flat[place + 1], e[3] .. '.' .. place)
        call('HDEL', KEYS[CUSTOM], field)
      end
    end
  elseif kind == 'cut' then
    local length = call('LLEN', KEYS[e[2]])
    if length <= e[3] then return end
    removed = removed + length - e[3]
    if e[3] == 0 then call('UNLINK', KEYS[e[2]]) else call('LTRIM', KEYS[e[2]], 0, e[3] - 1) end
  elseif kind == 'recount' then -- the last checkpoints may have counted messages that are gone
    for place = -1, -call('LLEN', KEYS[CHECKPOINTS]), -1 do
      local row = call('LINDEX', KEYS[CHECKPOINTS], place)
      local before, count, behind = row:match('^([^\31]*\31[^\31]*\31)(%d+)(.*)$')
      if tonumber(count) <= e[2] then return end
      call('LSET', KEYS[CHECKPOINTS], place, before .. string.format('%d', e[2]) .. behind)
    end
  elseif kind == '+' then
    if #e > BATCH then
      push(KEYS[e[3]], e, 4)
    else
      create(e[2], KEYS[e[3]], unpack(e, 4))
    end
  elseif kind == '!' then
    call(e[2], KEYS[e[3]], unpack(e, 4))
  elseif kind == 'run' then
    turn = create('RPUSH', KEYS[e[2]], e[4])
    create('HSET', KEYS[e[3]], e[4], turn .. ':' .. e[5])
  elseif kind == 'ref' then
    if create('HSET', KEYS[e[3]], e[4], e[5]) == 1 then create('RPUSH', KEYS[e[2]], e[4]) end
  elseif kind == 'extend' then
    if call('PTTL', KEYS[e[2]]) < e[3] then call('PEXPIRE', KEYS[e[2]], e[3]) end
  elseif kind == 'rename' then
    call('RENAME', KEYS[e[2]], KEYS[e[3]])
  elseif kind == 'unstage_all' then
    removed = removed + call('HLEN', KEYS[STAGING])
    call('UNLINK', KEYS[STAGING])
  elseif kind == 'destroy' then
    for _, key in ipairs(every_key()) do redis.pcall('UNLINK', key) end
    session = false
  end
end

-- Deadlines ----------------------------------------------------------------------------------------------------------

-- All keys of a session have the same deadline, to the millisecond. It moves for all of them together, and only when that
-- gains a tenth of the time to live; in between a key that was made by this write gets the deadline that the others have.
local function keep_together()
  local current, now = tonumber(main.deadline), nil
  if current then
    now = current - call('PTTL', KEYS[1]) -- which costs less than asking for the time
  else
    local time = call('TIME')
    current, now = 0, time[1] * 1000 + math.floor(time[2] / 1000)
  end
  local best = math.max(now, tonumber(main.expires_at) or 0) + session.ttl
  if best - current < session.ttl / 10 then return string.format('%.0f', current), false end
  return string.format('%.0f', best), true
end

local function expire(deadline, moved)
  if moved then
    -- pcall: while a cluster moves a slot some keys may be elsewhere; the next time finds them.
    for _, key in ipairs(every_key()) do redis.pcall('PEXPIREAT', key, deadline) end
  else
    for key in pairs(new) do call('PEXPIREAT', key, deadline) end
  end
end

-- The main hash is written last and as one; what it will hold is known from the beginning.

local fields = {}

local function set(field, value)
  main[field] = value
  fields[#fields + 1] = field
  fields[#fields + 1] = value
end

if session then
  for place = 1, #session.set, 2 do set(session.set[place], session.set[place + 1]) end
  for place = 1, #session.add, 2 do
    local field = session.add[place]
    set(field, string.format('%.0f', (tonumber(main[field]) or 0) + session.add[place + 1]))
  end
  local mark = session.mark
  if mark and not (main.statuses and string.find(main.statuses, mark, 1, true)) then
    set('statuses', (main.statuses or '') .. mark)
  end
  for _, field in ipairs(session.gone) do
    if main[field] then call('HDEL', KEYS[1], field) end
    main[field] = false
  end
end

for place = 1, #effects do run(effects[place]) end

if not session then return { 1 } end
flush_undo()
local deadline, moved = keep_together()
if moved then set('deadline', deadline) end
if #fields > 0 then call('HSET', KEYS[1], unpack(fields)) end
expire(deadline, moved)
if not message_count then message_count = call('LLEN', KEYS[MESSAGES]) end
local answer = {
  1, main.version, message_count, main.step_count or '0', main.resume_count or '0', removed, turn, moved and 1 or 0,
}
for _, each in ipairs(wanted) do answer[#answer + 1] = call(each[1], KEYS[each[2]], unpack(each, 3)) end
return answer
