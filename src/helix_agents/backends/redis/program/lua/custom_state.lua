-- Changes of custom state, and the undo log that reverts them.

-- Returns whether there is a checkpoint that could be restored.
local kept
local function remembers()
  if kept == nil then kept = call('LLEN', CHECKPOINTS) > 0 end
  return kept
end

local function log()
  if #notes > 0 and remembers() then push(UNDO, notes, 1, #notes, '') end
  notes = {}
end

-- Removes a key of custom state. A list or an object that older checkpoints need moves to the shelf.
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

-- Changes only the items that differ; returns false if a new list would be cheaper.
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
