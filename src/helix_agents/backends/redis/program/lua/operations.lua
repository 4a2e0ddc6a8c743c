-- The operations that write. Chains instead of tables of functions, which would be created for every run although most
-- are not needed. Each chain returns whether it knows the word.

local function write_anything(name, first, last)
  local one, two = words[first], words[first + 1]
  if name == 'call' then -- command, key, the rest
    call(one, KEYS[two + 0], unpack(words, first + 2, last))
  elseif name == 'make' then -- the same for HSET and SADD, which may create the key
    make(one, KEYS[two + 0], unpack(words, first + 2, last))
  elseif name == 'push' then -- key, prefix of a note that ends with the previous length, items
    push(KEYS[one + 0], words, first + 2, last, two)
  elseif name == 'answer' then -- command, key, the rest
    answers[#answers + 1] = call(one, KEYS[two + 0], unpack(words, first + 2, last))
  elseif name == 'unset' then -- key, prefix of the fields to delete
    local key = KEYS[one + 0]
    for _, field in ipairs(beginning_with(key, two)) do removed = removed + call('HDEL', key, field) end
  elseif name == 'cut' then -- key, how many items to keep
    removed = removed + math.max(0, call('LLEN', KEYS[one + 0]) - two)
    said = nil
    if two == '0' then call('DEL', KEYS[one + 0]) else call('LTRIM', KEYS[one + 0], 0, two - 1) end
  elseif name == 'rename' then
    call('RENAME', KEYS[one + 0], KEYS[two + 0])
  elseif name == 'extend' then -- key, minimum time to live in milliseconds
    if call('PTTL', KEYS[one + 0]) < tonumber(two) then call('PEXPIRE', KEYS[one + 0], two) end
  elseif name == 'follow' then -- key, another key: they expire together, if the other one exists
    local left = call('PTTL', KEYS[two + 0])
    if left > 0 then call('PEXPIRE', KEYS[one + 0], left) end
  else
    return false
  end
  return true
end

local function write_custom_state(name, first, last)
  local one, two, three, four = words[first], words[first + 1], words[first + 2], words[first + 3]
  if name == 'note' then -- an entry of the undo log
    notes[#notes + 1] = one
  elseif name == 'unless' then -- field, text, count: skip that many operations if the key holds the text ('' is absent)
    if (cells[one] or '') == two then skip(three) end
  elseif name == 'clear' then -- field, shelf
    clear(one, cells[one], two)
  elseif name == 'patch' then -- field, '[' or '{', key, operations to skip on success, items
    local patch = two == '[' and patch_list or patch_object
    if cells[one] == two and patch(KEYS[three + 0], one, first + 4, last) then skip(four) end
  elseif name == 'only' then -- shelf, the fields of custom state to keep
    local stays = {}
    for place = first + 1, last do stays[words[place]] = true end
    local flat = call('HGETALL', CUSTOM)
    for place = 1, #flat, 2 do
      if not stays[flat[place]] then
        clear(flat[place], flat[place + 1], one .. '.' .. place)
        call('HDEL', CUSTOM, flat[place])
      end
    end
  else
    return false
  end
  return true
end

-- Chunks that a commit carries: the stream's final output ('' if it continues, else '=' and the text), then pairs of
-- step and text.
local function append_along(ends, first, last)
  sequence = append(stream, stream.producer, stream.counter, words, first, last)
  if ends ~= '' then
    local status, text = string.match(ends, '^(%l+)=(.*)$')
    set_status(stream, status, status == 'ended' and text, status == 'failed' and text)
    publish(stream)
  end
end

-- The stream of a turn that this program claims: incarnation, producer_memory, then step and text of the marker.
local function start_along(incarnation, producer_memory, first, last)
  if stream.status then empty(stream, producer_memory + 0, words, first, last) else create(stream, incarnation) end
  raise_fence(stream)
end

-- `position`: the checkpoint's position in the stream; '~2' is two chunks before the end of the carried chunks.
local function checkpoint(short, before, position, behind)
  log()
  if string.byte(position) == 126 then position = number(sequence - string.sub(position, 2)) end
  local facts = { call('LLEN', UNDO), main.version, count_messages(), main.status, main.created_at, main.incarnation,
    before .. position .. behind }
  local place = make('RPUSH', CHECKPOINTS, table.concat(facts, SEPARATOR))
  call('HSET', CHECKPOINT_IDS, short, place)
  if place == 1 then new[CHECKPOINT_IDS] = true end
end

-- Lowers the message counts of checkpoints to at most `most`.
local function recount(most)
  for place = -1, -call('LLEN', CHECKPOINTS), -1 do
    local before, found, behind = call('LINDEX', CHECKPOINTS, place):match('^([^\31]*\31[^\31]*\31)(%d+)(.*)$')
    if tonumber(found) <= tonumber(most) then break end
    call('LSET', CHECKPOINTS, place, before .. most .. behind)
  end
end

local function enter_run(ids, records, run_id, text, given)
  turn = tonumber(given)
  local latest = turn == 0 and call('LINDEX', ids, -1)
  if latest then turn = call('HGET', records, latest):match('^%d+') + 1 elseif turn == 0 then turn = 1 end
  make('RPUSH', ids, run_id)
  make('HSET', records, run_id, turn .. ':' .. text)
end

local function write_session(name, first, last)
  local one, two, three, four = words[first], words[first + 1], words[first + 2], words[first + 3]
  if name == 'fields' then -- version, steps, resumes, status ('' for unchanged), then other fields with their texts
    if four ~= '' then main.status = four end
    call('HSET', MAIN, 'version', counted('version', one), 'step_count', counted('step_count', two),
      'resume_count', counted('resume_count', three), 'status', main.status, unpack(words, first + 4, last))
  elseif name == 'born' then -- when the session was created, and its incarnation
    main.created_at, main.incarnation = one, two
    call('HSET', MAIN, 'created_at', one, 'incarnation', two)
  elseif name == 'drop' then -- fields of the main hash, most of which are usually absent
    for place = first, last do
      if main[words[place]] then call('HDEL', MAIN, words[place]) end
    end
  elseif name == 'chunks' then -- final output, then alternating step and text
    append_along(one, first + 1, last)
  elseif name == 'start' then
    start_along(one, two, first + 2, last)
  elseif name == 'checkpoint' then -- short id, the row up to the position in the stream, the position, the rest of the row
    checkpoint(one, two, three, four)
  elseif name == 'deadline' then -- when the session expires ('' for as stored); '1' if that may be earlier than before
    log()
    expire(one == '' and main.expires_at or one, two)
    count_messages()
  elseif name == 'recount' then
    recount(one)
  elseif name == 'mark' then -- a word to add to the announced statuses
    if not holds('has', main.statuses, one) then call('HSET', MAIN, 'statuses', (main.statuses or '') .. one) end
  elseif name == 'run' then -- list, hash, id, text, turn ('0' is one after that of the latest run)
    enter_run(KEYS[one + 0], KEYS[two + 0], three, four, words[first + 4])
  elseif name == 'ref' then -- list, hash, id, text: add it, to the list only once
    if make('HSET', KEYS[two + 0], three, four) == 1 then make('RPUSH', KEYS[one + 0], three) end
  elseif name == 'destroy' then
    each_container('UNLINK')
    each_key('UNLINK')
    redis.pcall('PERSIST', string.sub(head, 1, -#':session' - 1) .. ':usage:entries' .. tail) -- the deletion of usage decides
  end
end

while at <= #words do
  local name, first = words[at], at + 2
  local last = first + words[at + 1] - 1
  at = last + 1
  local known, refused = guard(name, first, last)
  if refused then return { 0, refused, main.status, main.version, main.created_at } end
  if not known and not write_anything(name, first, last) and not write_custom_state(name, first, last) then
    write_session(name, first, last)
  end
end

return { 1, removed, turn, moved, main.version or '0', main.step_count or '0', main.resume_count or '0', said or 0,
  sequence, unpack(answers) }
