-- One change of one stream, all at once. KEYS: meta, chunks, producers. ARGV[1]: { what, arguments } packed.
--
-- The id of a chunk in the Redis stream is `<sequence>-0`. multi_streams.py does the same where scripts are forbidden.

local what, a = unpack(cmsgpack.unpack(ARGV[1]))
local META, CHUNKS, PRODUCERS = KEYS[1], KEYS[2], KEYS[3]
local call = redis.call
local PAGE = 500

local names = { 'status', 'latest', 'floor', 'kept', 'first', 'updated_at', 'refreshed_at', 'revision', 'created_at',
  'fence' }
local found = call('HMGET', META, unpack(names))
local head = {}
for place, name in ipairs(names) do head[name] = place == 1 and found[place] or tonumber(found[place]) end
local missing = not head.status or head.updated_at <= a.expired_before

-- A caller with a smaller fence than the stream's has been replaced by a newer owner.
local fenced = a.fence and (head.fence or 0) > a.fence

local function number(value) return string.format('%.0f', value) end

-- Keys live a tenth longer than they must, so that not every write has to move their deadline.
local function keep_alive(made_key)
  if a.ttl == 0 then return end
  if not made_key and a.now - (head.refreshed_at or 0) < a.ttl / 10 then return end
  for _, key in ipairs(KEYS) do call('PEXPIRE', key, number(a.ttl * 1.1 + 1000)) end
  call('HSET', META, 'refreshed_at', number(a.now))
end

local function first_after(sequence)
  local entry = call('XRANGE', CHUNKS, number(sequence + 1), '+', 'COUNT', 1)[1]
  return entry and tonumber(string.match(entry[1], '^%d+')) or nil
end

-- Adds chunks, given as step and text in turn, and answers the last sequence.
local function add(chunks)
  local made_key = head.kept == 0
  for place = 1, #chunks, 2 do
    head.latest = head.latest + 1
    head.kept = head.kept + 1
    call('XADD', CHUNKS, number(head.latest) .. '-0', 'm', chunks[place] .. ':' .. number(a.now), 'c', chunks[place + 1])
  end
  if made_key and #chunks > 0 then head.first = head.latest - #chunks / 2 + 1 end
  return made_key
end

-- Drops the oldest chunks: what is too many, and what is too old, but of the latter nothing that was just added.
local function retain(added)
  local excess = a.max_chunks > 0 and math.max(0, head.kept - a.max_chunks) or 0
  local dropped, count, more = 0, math.min(excess + 1, PAGE), true
  while more do
    local entries = call('XRANGE', CHUNKS, number(head.first), '+', 'COUNT', count)
    more = #entries == count
    for _, entry in ipairs(entries) do
      local written_at = tonumber(string.match(entry[2][2], ':(.*)$'))
      local old = head.kept - dropped > added and written_at <= a.expired_before
      head.first = tonumber(string.match(entry[1], '^%d+'))
      if dropped >= excess and not old then
        more = false
        break
      end
      dropped = dropped + 1
      head.floor = head.first
      head.first = head.first + 1
    end
  end
  if dropped == 0 then return end
  head.kept = head.kept - dropped
  call('XTRIM', CHUNKS, 'MINID', '~', number(head.first) .. '-0')
end

local function raise_fence()
  if a.fence and a.fence > (head.fence or 0) then call('HSET', META, 'fence', number(a.fence)) end
end

local function refused() return { 'fenced', number(head.fence) } end

local function save(...)
  call('HSET', META, 'latest', number(head.latest), 'floor', number(head.floor), 'kept', number(head.kept),
    'first', number(head.first), 'updated_at', number(a.now), ...)
end

-- Who follows the stream is told to look. A user without permission for the channel hears nothing and may still write.
local function tell() redis.pcall('PUBLISH', a.channel, '') end

local run = {}

function run.open()
  if fenced then return call('HGETALL', META) end
  if missing then
    call('DEL', CHUNKS, PRODUCERS)
    call('HDEL', META, 'final_output', 'error')
    call('HSETNX', META, 'incarnation', a.incarnation)
    local now, latest = number(a.now), number(head.latest or 0)
    call('HSET', META, 'status', 'active', 'revision', number((head.revision or -1) + 1), 'latest', latest,
      'floor', latest, 'kept', 0, 'first', number((head.latest or 0) + 1), 'created_at', now, 'updated_at', now)
    keep_alive(true)
  end
  raise_fence()
  return call('HGETALL', META)
end

function run.append()
  if missing then return { 'deleted' } end
  local known = call('HGET', PRODUCERS, a.producer)
  if known then
    local counter, sequence = string.match(known, '^(%d+):(%d+)')
    if tonumber(counter) >= a.counter then return { 'stored', sequence } end
  end
  if fenced then return refused() end
  if head.status ~= 'active' then return { head.status } end
  local made_key = add(a.chunks)
  local too_many = a.max_chunks > 0 and head.kept > a.max_chunks
  if too_many or head.created_at <= a.expired_before then retain(#a.chunks / 2) end
  save()
  local remembered = a.counter .. ':' .. number(head.latest) .. ':' .. number(a.now)
  local made_producers = call('HSET', PRODUCERS, a.producer, remembered) == 1
  keep_alive(made_key or made_producers)
  tell()
  return { 'stored', number(head.latest) }
end

function run.status()
  if missing then return false end
  if fenced then return call('HGETALL', META) end
  raise_fence()
  for _, allowed in ipairs(a.allowed) do
    if head.status == allowed then
      save('status', a.status, 'revision', head.revision + 1)
      for _, field in ipairs({ 'final_output', 'error' }) do
        if a[field] then call('HSET', META, field, a[field]) else call('HDEL', META, field) end
      end
      keep_alive(false)
      tell()
      break
    end
  end
  return call('HGETALL', META)
end

function run.rewind()
  if missing then return false end
  if fenced then return refused() end
  raise_fence()
  local removed, from = 0, head.floor + 1
  while true do
    local entries, doomed = call('XRANGE', CHUNKS, number(from), '+', 'COUNT', PAGE), {}
    for _, entry in ipairs(entries) do
      from = tonumber(string.match(entry[1], '^%d+')) + 1
      if tonumber(string.match(entry[2][2], '^[^:]*')) > a.step_count then doomed[#doomed + 1] = entry[1] end
    end
    if #doomed > 0 then removed = removed + call('XDEL', CHUNKS, unpack(doomed)) end
    if #entries < PAGE then break end
  end
  head.kept = head.kept - removed
  local made_key = add(a.marker)
  head.first = first_after(head.floor) or head.latest
  save('revision', head.revision + 1)
  keep_alive(made_key)
  tell()
  return removed
end

function run.reset()
  if missing then return false end
  if fenced then return refused() end
  raise_fence()
  call('DEL', CHUNKS)
  head.kept, head.floor = 0, 0
  add(a.marker)
  call('HDEL', META, 'final_output', 'error')
  save('status', 'active', 'revision', head.revision + 1)
  local producers = call('HGETALL', PRODUCERS)
  for place = 1, #producers, 2 do
    local seen_at = tonumber(string.match(producers[place + 1], ':([^:]*)$'))
    if seen_at <= a.now - a.producer_memory then call('HDEL', PRODUCERS, producers[place]) end
  end
  keep_alive(true)
  tell()
  return 1
end

function run.delete()
  if fenced then return refused() end
  call('DEL', META, CHUNKS, PRODUCERS)
  tell()
  return 1
end

return run[what]()
