-- Guards: each reads, and returns a reason if it fails.

local function holds(mode, found, expected)
  if mode == 'is' then return found == expected end
  if mode == 'absent' then return not found end
  if mode == 'some' then return found end
  if mode == 'below' then return tonumber(found or 0) < tonumber(expected) end
  if mode == 'has' then return found and string.find(found, expected, 1, true) end
  return found and string.find(expected, '|' .. found .. '|', 1, true) -- among
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

-- Custom state: key, fields, then as many expected texts: '' absent, '?' anything.
local function cells_differ(first, last)
  local half, differ = (last - first) / 2, false
  local found = call('HMGET', KEYS[words[first] + 0], unpack(words, first + 1, first + half))
  for place = 1, half do
    local text, expected = found[place], words[first + half + place]
    if expected ~= '?' and (text or '') ~= expected then differ = true end
    cells[words[first + place]] = text
  end
  return differ
end

-- The stream that this program changes: meta, chunks, producers, then fence ('' without one), now, expired_before, ttl,
-- max_chunks, channel.
local function find_stream(first)
  local meta, chunks, producers, fence, now, expired_before, life, most, channel = unpack(words, first, first + 8)
  stream = stream_at(KEYS[meta + 0], KEYS[chunks + 0], KEYS[producers + 0], {
    now = now + 0, expired_before = expired_before + 0, fence = fence ~= '' and fence + 0, ttl = life + 0,
    max_chunks = most + 0, channel = channel,
  })
end

local function stream_refuses(reason, detail) return reason and 'stream:' .. reason .. ':' .. (detail or '') end

-- Returns whether the word is a guard, and the reason if it fails.
local function guard(name, first, last)
  local one, two, three, four = words[first], words[first + 1], words[first + 2], words[first + 3]
  if name == 'field' then -- reason, mode, expected, field
    return true, not holds(two, main[four], three) and one
  elseif name == 'cells' then
    return true, cells_differ(first, last) and 'cells'
  elseif name == 'rows' then -- reason, key, prefix, the fields that must be all with this prefix
    return true, not are(beginning_with(KEYS[two + 0], three), first + 3, last) and one
  elseif name == 'reply' then -- reason, mode, expected, command, key, the rest of the command
    local found = call(four, KEYS[words[first + 4] + 0], unpack(words, first + 5, last))
    if type(found) == 'number' then found = string.format('%.0f', found) end
    return true, not holds(two, found, three) and one
  elseif name == 'appends' then -- a stream, then producer and counter
    find_stream(first)
    stream.producer, stream.counter = words[first + 9], words[first + 10]
    return true, stream_refuses(refusal(stream, stream.producer, stream.counter))
  elseif name == 'starts' then -- a stream, then its latest sequence as it was read, '' if there was none
    find_stream(first)
    return true, stream_refuses(start_refusal(stream, words[first + 9]))
  end
end
