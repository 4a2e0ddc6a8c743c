-- The short way of the commit that ends a step, for when nothing is out of the ordinary.
--
-- It takes flat words (made by step_commit.py) instead of a program and knows one shape: messages, plain values and
-- appends to lists in custom state, staged rows that go, a checkpoint. If anything is not as the writer believes, or the
-- deadline of the session must move, it answers nothing and has written nothing; commit.lua does it, or says why not.
--
-- KEYS: the session's main hash, messages, custom state, checkpoints, their ids, undo log, staging; a list per append.
-- ARGV: 1 version, or '' for any, 2 labels (with expires_at), 3 status as a word of `statuses`, 4 time to live,
--       5 beginning of the staged rows, 6 short id of the checkpoint, 7 status, 8 the rest of the checkpoint's row,
--       9 to 13 how many words the parts below have; then these, in order:
--       fields of the main hash; staged rows; cells to look at; what they hold ('' nothing, '?' whatever); cells to set;
--       for each append a field, a number and so many items; messages.

local call = redis.call
local SEPARATOR = '\31'

-- Nothing is written before all of this has been looked at.

local main = call('HMGET', KEYS[1], 'version', 'labels', 'statuses', 'expires_at', 'deadline', 'created_at', 'error',
  'failure_reason', 'interrupt_context')
if (ARGV[1] ~= '' and main[1] ~= ARGV[1]) or main[2] ~= ARGV[2] then return false end
if not main[5] or not main[3] or not string.find(main[3], ARGV[3], 1, true) then return false end
if main[7] or main[8] or main[9] then return false end -- they would have to go

local deadline, ttl = tonumber(main[5]), tonumber(ARGV[4])
local now = deadline - call('PTTL', KEYS[1])
if math.max(now, tonumber(main[4]) or 0) + ttl - deadline >= ttl / 10 then return false end

local fields = 14
local rows = fields + ARGV[9]
local cells = rows + ARGV[10]
local expected = cells + ARGV[11]
local sets = expected + ARGV[11]
local appends = sets + ARGV[12]
local messages = appends + ARGV[13]

local beginning, seen, staged = ARGV[5], 0, call('HKEYS', KEYS[7])
for place = 1, #staged do
  local row, known = staged[place], 0
  for each = rows, cells - 1 do
    if ARGV[each] == row then known = 1 end
  end
  if known == 0 and string.sub(row, 1, #beginning) == beginning then return false end
  seen = seen + known
end
if seen ~= cells - rows then return false end

local notes = {} -- how to take the changes of custom state back
if expected > cells then
  local found = call('HMGET', KEYS[3], unpack(ARGV, cells, expected - 1))
  local changed = (appends - sets) / 2 -- those to set come first
  for place = 1, #found do
    local old, believed = found[place], ARGV[expected + place - 1]
    if believed ~= '?' and (old or '') ~= believed then return false end
    if place <= changed then
      local field = ARGV[cells + place - 1]
      if old == '[' or old == '{' then return false end -- to be put on the shelf
      notes[place] = old and 'k' .. SEPARATOR .. field .. SEPARATOR .. old or 'K' .. SEPARATOR .. field
    end
  end
end

-- Writing. The length after a push tells whether the key was made by it; a new key gets the deadline of the others.

local at = main[5]

local function push(key, first, last)
  local length = call('RPUSH', key, unpack(ARGV, first, last))
  if length == last - first + 1 then call('PEXPIREAT', key, at) end
  return length
end

local count = messages <= #ARGV and push(KEYS[2], messages, #ARGV) or call('LLEN', KEYS[2])
if appends > sets and call('HSET', KEYS[3], unpack(ARGV, sets, appends - 1)) > 0 then call('PEXPIREAT', KEYS[3], at) end

local list = 8
while appends < messages do
  local last = appends + 1 + ARGV[appends + 1]
  local length = push(KEYS[list], appends + 2, last)
  notes[#notes + 1] = 'c' .. SEPARATOR .. ARGV[appends] .. SEPARATOR .. (length - ARGV[appends + 1])
  appends, list = last + 1, list + 1
end

if cells > rows then call('HDEL', KEYS[7], unpack(ARGV, rows, cells - 1)) end

local logged
if #notes > 0 then
  logged = call('RPUSH', KEYS[6], unpack(notes))
  if logged == #notes then call('PEXPIREAT', KEYS[6], at) end
else
  logged = call('LLEN', KEYS[6])
end

local version = string.format('%.0f', main[1] + 1)
local facts = logged .. SEPARATOR .. version .. SEPARATOR .. count .. SEPARATOR .. ARGV[7] .. SEPARATOR .. main[6]
local number = call('RPUSH', KEYS[4], facts .. SEPARATOR .. ARGV[8])
call('HSET', KEYS[5], ARGV[6], number)
if number == 1 then
  call('PEXPIREAT', KEYS[4], at)
  call('PEXPIREAT', KEYS[5], at)
end
call('HSET', KEYS[1], 'version', version, unpack(ARGV, fields, rows - 1))
return { version, count }
