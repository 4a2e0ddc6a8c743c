-- One change of one stream, all at once. KEYS: meta, chunks, producers. ARGV[1]: { what, arguments } packed.
-- The script is append.lua and this file, in one text.

local what, a = unpack(cmsgpack.unpack(ARGV[1]))
local call = redis.call
local s = stream_at(KEYS[1], KEYS[2], KEYS[3], a)
local META, CHUNKS, PRODUCERS = s.meta, s.chunks, s.producers

local function first_after(sequence)
  local entry = call('XRANGE', CHUNKS, number(sequence + 1), '+', 'COUNT', 1)[1]
  return entry and tonumber(string.match(entry[1], '^%d+')) or nil
end

local function raise_fence()
  if a.fence and a.fence > (s.fence or 0) then call('HSET', META, 'fence', number(a.fence)) end
end

local function refused() return { 'fenced', number(s.fence) } end

local run = {}

function run.open()
  if s.fenced then return call('HGETALL', META) end
  if s.missing then
    call('DEL', CHUNKS, PRODUCERS)
    call('HDEL', META, 'final_output', 'error')
    call('HSETNX', META, 'incarnation', a.incarnation)
    local now, latest = number(a.now), number(s.latest or 0)
    call('HSET', META, 'status', 'active', 'revision', number((s.revision or -1) + 1), 'latest', latest,
      'floor', latest, 'kept', 0, 'first', number((s.latest or 0) + 1), 'created_at', now, 'updated_at', now)
    keep_alive(s, true)
  end
  raise_fence()
  return call('HGETALL', META)
end

function run.append()
  local reason, detail = refusal(s, a.producer, a.counter)
  if reason then return { reason, detail } end
  return { 'stored', append(s, a.producer, a.counter, a.chunks, 1, #a.chunks) }
end

function run.status()
  if s.missing then return false end
  if s.fenced then return call('HGETALL', META) end
  raise_fence()
  for _, allowed in ipairs(a.allowed) do
    if s.status == allowed then
      set_status(s, a.status, a.final_output, a.error)
      keep_alive(s, false)
      publish(s)
      break
    end
  end
  return call('HGETALL', META)
end

function run.rewind()
  if s.missing then return false end
  if s.fenced then return refused() end
  raise_fence()
  local removed, from = 0, s.floor + 1
  while true do
    local entries, doomed = call('XRANGE', CHUNKS, number(from), '+', 'COUNT', PAGE), {}
    for _, entry in ipairs(entries) do
      from = tonumber(string.match(entry[1], '^%d+')) + 1
      if tonumber(string.match(entry[2][2], '^[^:]*')) > a.step_count then doomed[#doomed + 1] = entry[1] end
    end
    if #doomed > 0 then removed = removed + call('XDEL', CHUNKS, unpack(doomed)) end
    if #entries < PAGE then break end
  end
  s.kept = s.kept - removed
  local made_key = add(s, a.marker, 1, #a.marker)
  s.first = first_after(s.floor) or s.latest
  save(s, 'revision', s.revision + 1)
  keep_alive(s, made_key)
  publish(s)
  return removed
end

function run.reset()
  if s.missing then return false end
  if s.fenced then return refused() end
  raise_fence()
  call('DEL', CHUNKS)
  s.kept, s.floor = 0, 0
  add(s, a.marker, 1, #a.marker)
  set_status(s, 'active', false, false)
  local producers = call('HGETALL', PRODUCERS)
  for place = 1, #producers, 2 do
    local seen_at = tonumber(string.match(producers[place + 1], ':([^:]*)$'))
    if seen_at <= a.now - a.producer_memory then call('HDEL', PRODUCERS, producers[place]) end
  end
  keep_alive(s, true)
  publish(s)
  return 1
end

function run.delete()
  if s.fenced then return refused() end
  call('DEL', META, CHUNKS, PRODUCERS)
  publish(s)
  return 1
end

return run[what]()
