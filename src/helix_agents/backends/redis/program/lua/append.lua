-- Appends to a stream. `s` is the stream: its keys (meta, chunks, producers), its current head, and `a`, the caller's
-- arguments: now, expired_before, fence (false without one), ttl, max_chunks, channel. The id of a chunk in the
-- Redis stream is `<sequence>-0`. streams_without_scripts.py does the same where scripts are forbidden.

local PAGE = 500
local HEAD = { 'status', 'latest', 'floor', 'kept', 'first', 'updated_at', 'refreshed_at', 'revision', 'created_at',
  'fence' }

local function number(value) return string.format('%.0f', value) end

local function stream_at(meta, chunks, producers, a)
  local s, found = { meta = meta, chunks = chunks, producers = producers, a = a }, redis.call('HMGET', meta, unpack(HEAD))
  for place, name in ipairs(HEAD) do s[name] = place == 1 and found[place] or tonumber(found[place]) end
  s.missing = not s.status or s.updated_at <= a.expired_before
  -- A caller with a smaller fence than the stream's has been replaced by a newer owner.
  s.fenced = a.fence and (s.fence or 0) > a.fence
  return s
end

-- Keys live up to a tenth longer than needed, so that not every write has to move their deadline, but no longer than the
-- session with the same id. `kept_until` is read by the session, which moves their deadline along with its own.
local function keep_alive(s, made_key)
  local a = s.a
  if not made_key and (a.ttl == 0 or a.now - (s.refreshed_at or 0) < a.ttl / 10) then return end
  local left = redis.call('PTTL', (string.gsub(s.meta, ':stream:meta:({[^{}]*})$', ':session:%1')))
  local life = a.ttl > 0 and a.ttl * 1.1 + 1000 or nil
  redis.call('HSET', s.meta, 'refreshed_at', number(a.now))
  if life then
    local time = redis.call('TIME')
    redis.call('HSET', s.meta, 'kept_until', number(time[1] * 1000 + math.floor(time[2] / 1000) + life))
  end
  if left > 0 and left < (life or left + 1) then life = left end
  if not life then return end
  for _, key in ipairs({ s.meta, s.chunks, s.producers }) do redis.call('PEXPIRE', key, number(life)) end
end

-- Adds chunks, given as alternating step and text. Returns whether that created the key.
local function add(s, texts, first, last)
  local made_key = s.kept == 0
  if made_key and last >= first then s.first = s.latest + 1 end
  for place = first, last, 2 do
    s.latest = s.latest + 1
    s.kept = s.kept + 1
    local facts = texts[place] .. ':' .. number(s.a.now)
    redis.call('XADD', s.chunks, number(s.latest) .. '-0', 'm', facts, 'c', texts[place + 1])
  end
  return made_key
end

-- Drops the oldest chunks: those over the limit and those that are too old, but none that was just added for its age.
local function retain(s, added)
  local excess = s.a.max_chunks > 0 and math.max(0, s.kept - s.a.max_chunks) or 0
  local dropped, count, more = 0, math.min(excess + 1, PAGE), true
  while more do
    local entries = redis.call('XRANGE', s.chunks, number(s.first), '+', 'COUNT', count)
    more = #entries == count
    for _, entry in ipairs(entries) do
      local written_at = tonumber(string.match(entry[2][2], ':(.*)$'))
      local old = s.kept - dropped > added and written_at <= s.a.expired_before
      s.first = tonumber(string.match(entry[1], '^%d+'))
      if dropped >= excess and not old then
        more = false
        break
      end
      dropped = dropped + 1
      s.floor = s.first
      s.first = s.first + 1
    end
  end
  if dropped == 0 then return end
  s.kept = s.kept - dropped
  redis.call('XTRIM', s.chunks, 'MINID', '~', number(s.first) .. '-0')
end

local function save(s, ...)
  redis.call('HSET', s.meta, 'latest', number(s.latest), 'floor', number(s.floor), 'kept', number(s.kept),
    'first', number(s.first), 'updated_at', number(s.a.now), ...)
end

local function set_status(s, status, final_output, error)
  save(s, 'status', status, 'revision', s.revision + 1)
  if final_output then redis.call('HSET', s.meta, 'final_output', final_output)
  else redis.call('HDEL', s.meta, 'final_output') end
  if error then redis.call('HSET', s.meta, 'error', error) else redis.call('HDEL', s.meta, 'error') end
end

-- Notifies the readers of the stream. A user without permission for the channel may still write.
local function publish(s) redis.pcall('PUBLISH', s.a.channel, '') end

-- Returns why an append is rejected, and the number that belongs to the reason; nil if it is accepted.
local function refusal(s, producer, counter)
  if s.missing then return 'deleted' end
  local known = redis.call('HGET', s.producers, producer)
  if known then
    local last, stored = string.match(known, '^(%d+):(%d+)')
    if tonumber(last) >= tonumber(counter) then return 'stored', stored end
  end
  if s.fenced then return 'fenced', number(s.fence) end
  if s.status ~= 'active' then return s.status end
end

local function raise_fence(s)
  local fence = s.a.fence
  if fence and fence > (s.fence or 0) then redis.call('HSET', s.meta, 'fence', number(fence)) end
end

-- Stores the chunks. Returns the sequence of the last one.
local function append(s, producer, counter, texts, first, last)
  local added = (last - first + 1) / 2
  raise_fence(s)
  local made_key = add(s, texts, first, last)
  local too_many = s.a.max_chunks > 0 and s.kept > s.a.max_chunks
  if too_many or s.created_at <= s.a.expired_before then retain(s, added) end
  save(s)
  local remembered = counter .. ':' .. number(s.latest) .. ':' .. number(s.a.now)
  local made_producers = redis.call('HSET', s.producers, producer, remembered) == 1
  keep_alive(s, made_key or made_producers)
  publish(s)
  return number(s.latest)
end
