-- One atomic change of one stream. KEYS: meta, chunks, producers. ARGV[1]: { what, arguments } packed.
-- The script is append.lua, start.lua and this file, in one text.

local what, a = unpack(cmsgpack.unpack(ARGV[1]))
local call = redis.call
local s = stream_at(KEYS[1], KEYS[2], KEYS[3], a)
local META, CHUNKS, PRODUCERS = s.meta, s.chunks, s.producers

local function first_after(sequence)
  local entry = call('XRANGE', CHUNKS, number(sequence + 1), '+', 'COUNT', 1)[1]
  return entry and tonumber(string.match(entry[1], '^%d+')) or nil
end

local function refused() return { 'fenced', number(s.fence) } end

local run = {}

function run.open()
  if s.fenced then return call('HGETALL', META) end
  if s.missing then create(s, a.incarnation) end
  raise_fence(s)
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
  raise_fence(s)
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
  raise_fence(s)
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
  raise_fence(s)
  empty(s, a.producer_memory, a.marker, 1, #a.marker)
  return 1
end

function run.delete()
  if s.fenced then return refused() end
  call('DEL', META, CHUNKS, PRODUCERS)
  publish(s)
  return 1
end

return run[what]()
