-- Creates and empties streams, alone (stream.lua) or with the claim of a turn (operations.lua).

-- Activates a stream that does not exist or has expired. Sequences of an expired one are not reused.
local function create(s, incarnation)
  redis.call('DEL', s.chunks, s.producers)
  redis.call('HDEL', s.meta, 'final_output', 'error')
  redis.call('HSETNX', s.meta, 'incarnation', incarnation)
  local now, latest = number(s.a.now), number(s.latest or 0)
  redis.call('HSET', s.meta, 'status', 'active', 'revision', number((s.revision or -1) + 1), 'latest', latest,
    'floor', latest, 'kept', 0, 'first', number((s.latest or 0) + 1), 'created_at', now, 'updated_at', now)
  keep_alive(s, true)
end

-- Drops all chunks and adds the marker of the reset: texts[first] to texts[last], alternating step and text.
local function empty(s, producer_memory, texts, first, last)
  redis.call('DEL', s.chunks)
  s.kept, s.floor = 0, 0
  add(s, texts, first, last)
  set_status(s, 'active', false, false)
  local producers = redis.call('HGETALL', s.producers)
  for place = 1, #producers, 2 do
    local seen_at = tonumber(string.match(producers[place + 1], ':([^:]*)$'))
    if seen_at <= s.a.now - producer_memory then redis.call('HDEL', s.producers, producers[place]) end
  end
  keep_alive(s, true)
  publish(s)
end

-- Returns why a turn cannot start on the stream, which must not have changed since it was read. `latest`: '' for no stream.
local function start_refusal(s, latest)
  if s.fenced then return 'fenced', number(s.fence) end
  if latest == '' then return s.status end
  if s.missing then return 'deleted' end
  return number(s.latest) ~= latest and s.status
end
