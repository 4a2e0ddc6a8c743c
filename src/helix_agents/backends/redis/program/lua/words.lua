-- Runs one program, guards and then writes, atomically.
--
-- A program is flat words, made by vocabulary.py: time to live and the two halves of the session's key names ('' outside
-- of sessions), then operations: a name, how many words follow, the words. Keys are indexes into KEYS; texts are never
-- parsed. Guards come first: when one fails, nothing has been written and its reason is returned.
-- compile.py translates commits to these words; without_scripts.py has the same operations for servers where scripts
-- are forbidden. The script is this file and those after it (see runner.py), in one text.

local words = #ARGV == 1 and cmsgpack.unpack(ARGV[1]) or ARGV -- packed when there are more than the protocol accepts
local call = redis.call
local BATCH = 4000 -- more values in one call do not fit on Lua's stack
local SEPARATOR = '\31'
local ttl, head, tail = words[1], words[2], words[3]

-- The first keys of a program that writes a session, in the order of keys.STATIC.
local MAIN, MESSAGES, CUSTOM, ARRAY_KEYS, OBJECT_KEYS, CHECKPOINTS, CHECKPOINT_IDS, UNDO, HISTORY = unpack(KEYS, 1, 9)
local OTHERS = { ':staging', ':runs', ':runs:ids', ':subsession', ':subsession:ids', ':branches' }
local FAMILIES = { ':customstate:arraykeys', ':customstate:list', ':customstate:objectkeys', ':customstate:object',
  ':history', ':history' }

-- The fields of the main hash that guards and writes read.
local FIELDS = { 'version', 'status', 'created_at', 'deadline', 'expires_at', 'labels', 'statuses', 'step_count',
  'resume_count', 'error', 'failure_reason', 'interrupt_context', 'interrupt_flag', 'incarnation', 'owner_epoch',
  'agent_type', 'user_id', 'due_at' }

local main, cells = {}, {} -- the current values of these fields, and of custom state as read
local new, notes = {}, {} -- keys that this program may have created; how to revert its changes of custom state
local removed, turn, moved, sequence, answers = 0, 0, 0, '0', {}
local said -- the message count, once it is known
local stream -- the stream that this program appends to
local at = 4 -- where the next operation starts

if ttl ~= '' then
  local found = call('HMGET', MAIN, unpack(FIELDS))
  for place = 1, #FIELDS do main[FIELDS[place]] = found[place] end
end

local function skip(operations)
  for _ = 1, operations do at = at + 2 + words[at + 1] end
end

-- RPUSH returns the length, HSET and SADD how many are new: if that is more than were given, the key existed before.
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

-- The fields of a hash with this prefix.
local function beginning_with(key, beginning)
  local found, names = call('HKEYS', key), {}
  for place = 1, #found do
    if string.sub(found[place], 1, #beginning) == beginning then names[#names + 1] = found[place] end
  end
  return names
end
