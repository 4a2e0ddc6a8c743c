-- A commit, as one function and its parts. The first statement locks the session's row, so that the others read data
-- that cannot change. Every statement is small and finds its rows by an index: one large statement with CTEs took longer,
-- mostly for its startup. A failed guard undoes everything.
--
-- _t starts with how the row changes: 'state', 'restore' or 'create' and the fields (2-5 incarnation, created_at, agent_type,
-- user_id; 6-11 stream_id, parent, root, status, tags, metadata; 12-18 output, error, failure_reason, pending, completed,
-- suspension, interrupt; 19 forked_from, for 'create'), or 'touch'. Changes follow, each a word and its texts, in the
-- order of `commit_call.py`. A part finds its texts after _i, the position of its word; some return that of the next
-- word. _number is the checkpoint before this commit, as cells count them. Parts that return json[] return the cells they
-- overwrite and an earlier checkpoint still needs: [key, slot, text, since].

-- Store the fields of a session. If a guard fails, no row is found and everything is NULL. _status: the status before.
CREATE OR REPLACE FUNCTION __agents_commit_state(
  _session text, _now bigint, _incarnation text, _epoch bigint, _expected bigint, _new_epoch bigint, _bump int,
  _checkpoints int, _steps bigint, _resumes bigint, _expires_at bigint, _due_at bigint, _said int, _t text[],
  OUT _version bigint, OUT _count bigint, OUT _number bigint, OUT _step_count bigint, OUT _resume_count bigint,
  OUT _status text
) LANGUAGE plpgsql AS $part$
#variable_conflict use_column
DECLARE
  _relabel bool;
  _another bool; -- whether the session is not the one that the fields belong to
BEGIN
  UPDATE __agents_states SET updated_at = _now, version = version + _bump, message_count = message_count + _said,
    checkpoint_count = checkpoint_count + _checkpoints, step_count = _steps, resume_count = _resumes,
    owner_epoch = COALESCE(_new_epoch, owner_epoch),
    output = _t[12], error = _t[13], failure_reason = _t[14], pending_client_tool_calls = _t[15],
    completed_client_tool_calls = _t[16], suspension_context = _t[17], interrupt_context = _t[18]
  WHERE session_id = _session AND (_expected IS NULL OR version = _expected)
    AND (_incarnation IS NULL OR incarnation = _incarnation) AND (_epoch IS NULL OR owner_epoch = _epoch)
    AND (_new_epoch IS NULL OR owner_epoch < _new_epoch)
  RETURNING version, message_count, checkpoint_count - _checkpoints, step_count, resume_count, status,
    expires_at IS DISTINCT FROM _expires_at OR due_at IS DISTINCT FROM _due_at
      OR _t[6:11] <> ARRAY[stream_id, parent_session_id, root_session_id, status, tags, metadata],
    _t[1] = 'state' AND (COALESCE(incarnation <> _t[2], false) OR COALESCE(created_at <> _t[3]::bigint, false)
      OR agent_type <> _t[4] OR user_id IS DISTINCT FROM _t[5])
  INTO _version, _count, _number, _step_count, _resume_count, _status, _relabel, _another;
  IF _another THEN
    INSERT INTO __agents_guard (reason) VALUES ('identity');
  END IF;
  IF _relabel THEN
    -- Indexed columns are written only if they differ; naming one at all would fire the triggers.
    UPDATE __agents_states SET stream_id = _t[6], parent_session_id = _t[7], root_session_id = _t[8], status = _t[9],
      tags = _t[10], metadata = _t[11], expires_at = _expires_at, due_at = _due_at WHERE session_id = _session;
  END IF;
END $part$;

-- Update the counters of a session, as above.
CREATE OR REPLACE FUNCTION __agents_commit_touch(
  _session text, _now bigint, _incarnation text, _epoch bigint, _expected bigint, _new_epoch bigint, _bump int,
  _checkpoints int, _steps bigint, _resumes bigint, _expires_at bigint, _due_at bigint, _said int, _t text[],
  OUT _version bigint, OUT _count bigint, OUT _number bigint, OUT _step_count bigint, OUT _resume_count bigint,
  OUT _status text
) LANGUAGE plpgsql AS $part$
#variable_conflict use_column
BEGIN
  UPDATE __agents_states SET updated_at = _now, version = version + _bump, message_count = message_count + _said,
    checkpoint_count = checkpoint_count + _checkpoints, step_count = step_count + _steps,
    resume_count = resume_count + _resumes, owner_epoch = COALESCE(_new_epoch, owner_epoch)
  WHERE session_id = _session AND (_expected IS NULL OR version = _expected)
    AND (_incarnation IS NULL OR incarnation = _incarnation) AND (_epoch IS NULL OR owner_epoch = _epoch)
    AND (_new_epoch IS NULL OR owner_epoch < _new_epoch)
  RETURNING version, message_count, checkpoint_count - _checkpoints, step_count, resume_count, status
  INTO _version, _count, _number, _step_count, _resume_count, _status;
END $part$;

-- Create a session.
CREATE OR REPLACE FUNCTION __agents_commit_create(
  _session text, _now bigint, _incarnation text, _epoch bigint, _expected bigint, _new_epoch bigint, _bump int,
  _checkpoints int, _steps bigint, _resumes bigint, _expires_at bigint, _due_at bigint, _said int, _t text[],
  OUT _version bigint, OUT _count bigint, OUT _number bigint, OUT _step_count bigint, OUT _resume_count bigint,
  OUT _status text
) LANGUAGE plpgsql AS $part$
#variable_conflict use_column
BEGIN
  -- The parent's row is locked, so that a deletion of the tree either finds this new session or finishes first.
  PERFORM 1 FROM __agents_states WHERE session_id = _t[7] FOR KEY SHARE;
  INSERT INTO __agents_states (session_id, incarnation, agent_type, user_id, stream_id, parent_session_id,
    root_session_id, status, tags, metadata, output, error, failure_reason, pending_client_tool_calls,
    completed_client_tool_calls, suspension_context, interrupt_context, expires_at, due_at, step_count,
    resume_count, owner_epoch, message_count, checkpoint_count, created_at, updated_at, forked_from)
  VALUES (_session, _t[2], _t[4], _t[5], _t[6], _t[7], _t[8], _t[9], _t[10], _t[11], _t[12], _t[13], _t[14], _t[15],
    _t[16], _t[17], _t[18], _expires_at, _due_at, _steps, _resumes, COALESCE(_new_epoch, 0), _said, _checkpoints, _now,
    _now, _t[19])
  RETURNING version, message_count, 0, step_count, resume_count
  INTO _version, _count, _number, _step_count, _resume_count;
END $part$;

-- Key, slot, the text seen, the new one (NULL: delete the cell). 'expect': it must hold the text seen; nothing changes.
-- 'set': the same, then change it. 'put': change it, whatever it holds. 'key': the same for all cells of the key.
CREATE OR REPLACE FUNCTION __agents_commit_cell(
  _session text, _number bigint, _t text[], _i int
) RETURNS json[] LANGUAGE plpgsql AS $part$
#variable_conflict use_column
DECLARE
  _word text := _t[_i];
  _key text := _t[_i + 1];
  _slot text := _t[_i + 2];
  _text text := _t[_i + 4];
  _value text;
  _since bigint;
  _kept json[];
BEGIN
  SELECT value, since INTO _value, _since FROM __agents_custom_state
  WHERE session_id = _session AND key = _key AND slot = _slot;
  IF _word IN ('expect', 'set') AND _value IS DISTINCT FROM _t[_i + 3] THEN
    INSERT INTO __agents_guard (reason) VALUES ('cells');
  ELSIF _word = 'key' AND _value IN ('[', '{') THEN
    WITH gone AS (
      DELETE FROM __agents_custom_state
      WHERE session_id = _session AND key = _key AND slot > ''
      RETURNING slot, value, since)
    SELECT _kept || array_agg(json_build_array(_key, slot, value, since)) INTO _kept FROM gone
    WHERE since < _number;
  END IF;
  IF _word <> 'expect' AND _value IS DISTINCT FROM _text THEN
    IF _since < _number AND _value IS NOT NULL THEN
      _kept := _kept || json_build_array(_key, _slot, _value, _since);
    END IF;
    IF _value IS NULL THEN
      INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
      VALUES (_session, _key, _slot, _text, _number);
    ELSIF _text IS NULL THEN
      DELETE FROM __agents_custom_state WHERE session_id = _session AND key = _key AND slot = _slot;
    ELSE
      UPDATE __agents_custom_state SET value = _text, since = _number
      WHERE session_id = _session AND key = _key AND slot = _slot;
    END IF;
  END IF;
  RETURN _kept;
END $part$;

-- Key, count, that many items to append to a list. Its last item is at the end of its index range.
CREATE OR REPLACE FUNCTION __agents_commit_append(
  _session text, _number bigint, _t text[], _i int
) RETURNS int LANGUAGE plpgsql AS $part$
#variable_conflict use_column
DECLARE
  _key text := _t[_i + 1];
  _n int := _t[_i + 2];
  _rows bigint;
BEGIN
  SELECT substr(slot, 2)::bigint INTO _rows FROM __agents_custom_state
  WHERE session_id = _session AND key = _key AND slot >= '#' AND slot < '$' ORDER BY slot DESC LIMIT 1;
  IF NOT FOUND THEN
    IF NOT EXISTS (SELECT 1 FROM __agents_custom_state
        WHERE session_id = _session AND key = _key AND slot = '' AND value = '[') THEN
      INSERT INTO __agents_guard (reason) VALUES ('cells'); -- not a list any more
    END IF;
    _rows := -1;
  END IF;
  INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
  SELECT _session, _key, '#' || lpad((_rows + place)::text, 10, '0'), text, _number
  FROM unnest(_t[_i + 3:_i + 2 + _n]) WITH ORDINALITY AS u (text, place);
  RETURN _i + 3 + _n;
END $part$;

-- Step, count, that many tokens: the staged rows of that step must be exactly these; delete them.
CREATE OR REPLACE FUNCTION __agents_commit_promote(
  _session text, _number bigint, _t text[], _i int
) RETURNS int LANGUAGE plpgsql AS $part$
#variable_conflict use_column
DECLARE
  _n int := _t[_i + 2];
  _rows bigint := 0;
BEGIN
  IF _n > 0 THEN
    DELETE FROM __agents_staging
    WHERE session_id = _session AND step_id = _t[_i + 1] AND token = ANY (_t[_i + 3:_i + 2 + _n]);
    GET DIAGNOSTICS _rows = ROW_COUNT;
  END IF;
  IF _rows <> _n OR EXISTS (
      SELECT 1 FROM __agents_staging WHERE session_id = _session AND step_id = _t[_i + 1]) THEN
    INSERT INTO __agents_guard (reason) VALUES ('staged');
  END IF;
  RETURN _i + 3 + _n;
END $part$;

-- Count of cells, their keys, slots and texts: the new content of these keys ('all': of the whole state).
CREATE OR REPLACE FUNCTION __agents_commit_keys(
  _session text, _number bigint, _t text[], _i int
) RETURNS json[] LANGUAGE plpgsql AS $part$
#variable_conflict use_column
DECLARE
  _n int := _t[_i + 1];
  _keys text[] := _t[_i + 2:_i + 1 + _n];
  _slots text[] := _t[_i + 2 + _n:_i + 1 + 2 * _n];
  _texts text[] := _t[_i + 2 + 2 * _n:_i + 1 + 3 * _n];
  _all_keys text[];
  _kept json[];
BEGIN
  IF _t[1] <> 'create' THEN
    IF _t[_i] = 'all' THEN
      _all_keys := ARRAY(SELECT DISTINCT key FROM __agents_custom_state WHERE session_id = _session);
    ELSE
      _all_keys := ARRAY(SELECT DISTINCT k FROM unnest(_keys) AS u (k));
    END IF;
    _kept := ARRAY(
      SELECT json_build_array(key, slot, value, since) FROM __agents_custom_state AS c
      WHERE session_id = _session AND key = ANY (_all_keys) AND since < _number
        AND NOT EXISTS (SELECT 1 FROM unnest(_keys, _slots, _texts) AS w (k, s, t)
          WHERE w.k = c.key AND w.s = c.slot AND w.t = c.value));
    DELETE FROM __agents_custom_state AS c
    WHERE session_id = _session AND key = ANY (_all_keys)
      AND NOT EXISTS (SELECT 1 FROM unnest(_keys, _slots) AS w (k, s) WHERE w.k = c.key AND w.s = c.slot);
  END IF;
  INSERT INTO __agents_custom_state AS c (session_id, key, slot, value, since)
  SELECT _session, w.k, w.s, w.t, _number FROM unnest(_keys, _slots, _texts) AS w (k, s, t)
  ON CONFLICT (session_id, key, slot) DO UPDATE SET value = excluded.value, since = excluded.since
  WHERE c.value <> excluded.value;
  RETURN _kept;
END $part$;

-- Id, step, step count, sequence in the stream, kind, fields, status of the session. The last change of custom state:
-- its row stores what was overwritten.
CREATE OR REPLACE FUNCTION __agents_commit_checkpoint(
  _session text, _number bigint, _t text[], _i int, _now bigint, _count bigint, _version bigint, _kept json[]
) RETURNS int LANGUAGE plpgsql AS $part$
#variable_conflict use_column
BEGIN
  INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence,
    kind, message_count, status, version, state, created_at, overwritten)
  VALUES (_session, _number + 1, _t[_i + 1], _t[_i + 2], _t[_i + 3]::bigint, _t[_i + 4]::bigint, _t[_i + 5], _count,
    _t[_i + 7], _version, _t[_i + 6], _now, array_to_json(_kept)::text);
  RETURN _i + 8;
END $part$;

-- Restore the checkpoint of that number: delete new cells before old ones are restored.
CREATE OR REPLACE FUNCTION __agents_commit_restore(
  _session text, _number bigint
) RETURNS bigint LANGUAGE plpgsql AS $part$
#variable_conflict use_column
BEGIN
  IF NOT EXISTS (SELECT 1 FROM __agents_checkpoints WHERE session_id = _session AND number = _number) THEN
    INSERT INTO __agents_guard (reason) VALUES ('checkpoint');
  END IF;
  DELETE FROM __agents_custom_state WHERE session_id = _session AND since >= _number;
  INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
  SELECT session_id, key, slot, value, since FROM __agents_history
  WHERE session_id = _session AND number > _number AND since < _number;
  DELETE FROM __agents_past WHERE session_id = _session AND number > _number;
  DELETE FROM __agents_checkpoints WHERE session_id = _session AND number > _number;
  UPDATE __agents_states SET checkpoint_count = _number WHERE session_id = _session;
  RETURN _number;
END $part$;

-- Drop the messages after the first _rows of _count, and correct the last checkpoints, which counted more. _said
-- messages will be appended. Returns how many were dropped.
CREATE OR REPLACE FUNCTION __agents_commit_keep(
  _session text, _count bigint, _said int, _rows bigint
) RETURNS bigint LANGUAGE plpgsql AS $part$
#variable_conflict use_column
BEGIN
  IF _count > _rows THEN
    DELETE FROM __agents_messages WHERE session_id = _session AND sequence >= _rows;
    UPDATE __agents_states SET message_count = _rows + _said WHERE session_id = _session;
    UPDATE __agents_checkpoints SET message_count = _rows WHERE session_id = _session AND number > COALESCE((
      SELECT number FROM __agents_checkpoints WHERE session_id = _session AND message_count <= _rows
      ORDER BY number DESC LIMIT 1), 0);
  END IF;
  RETURN GREATEST(_count - _rows, 0);
END $part$;

-- Drop the staged rows of a step; NULL: of every step. Returns how many there were.
CREATE OR REPLACE FUNCTION __agents_commit_discard(
  _session text, _step text
) RETURNS bigint LANGUAGE plpgsql AS $part$
#variable_conflict use_column
DECLARE
  _rows bigint;
BEGIN
  IF _step IS NULL THEN
    DELETE FROM __agents_staging WHERE session_id = _session;
  ELSE
    DELETE FROM __agents_staging WHERE session_id = _session AND step_id = _step;
  END IF;
  GET DIAGNOSTICS _rows = ROW_COUNT;
  RETURN _rows;
END $part$;

-- Run, turn (0: the one after that of the latest run), status, step count, first sequence, time, metadata, lease,
-- details. Returns the turn.
CREATE OR REPLACE FUNCTION __agents_commit_run(
  _session text, _number bigint, _t text[], _i int
) RETURNS bigint LANGUAGE plpgsql AS $part$
#variable_conflict use_column
DECLARE
  _rows bigint;
  _turn bigint;
BEGIN
  SELECT position, turn INTO _rows, _turn FROM __agents_runs
  WHERE session_id = _session ORDER BY position DESC LIMIT 1;
  _turn := CASE WHEN _t[_i + 2] = '0' THEN COALESCE(_turn, 0) + 1 ELSE _t[_i + 2]::bigint END;
  INSERT INTO __agents_runs (run_id, session_id, position, turn, status, step_count, start_sequence, started_at,
    metadata, lease_until, details)
  VALUES (_t[_i + 1], _session, COALESCE(_rows, 0) + 1, _turn, _t[_i + 3], _t[_i + 4]::bigint, _t[_i + 5]::bigint,
    _t[_i + 6]::bigint, _t[_i + 7], _t[_i + 8]::bigint, _t[_i + 9]);
  RETURN _turn;
END $part$;

-- Copy a session: its id, incarnation, version, a checkpoint's number and message count (NULL: the current state).
-- Returns how many messages were copied.
CREATE OR REPLACE FUNCTION __agents_commit_copy(
  _session text, _number bigint, _t text[], _i int
) RETURNS bigint LANGUAGE plpgsql AS $part$
#variable_conflict use_column
DECLARE
  _rows bigint;
BEGIN
  SELECT version INTO _rows FROM __agents_states
  WHERE session_id = _t[_i + 1] AND incarnation = _t[_i + 2] FOR NO KEY UPDATE;
  IF _rows IS NULL THEN
    INSERT INTO __agents_guard (reason) VALUES ('missing');
  ELSIF _rows <> _t[_i + 3]::bigint THEN
    INSERT INTO __agents_guard (reason) VALUES ('version');
  ELSIF _t[_i + 4] IS NULL THEN
    INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
    SELECT _session, key, slot, value, 0 FROM __agents_custom_state WHERE session_id = _t[_i + 1];
  ELSIF NOT EXISTS (
      SELECT 1 FROM __agents_checkpoints WHERE session_id = _t[_i + 1] AND number = _t[_i + 4]::bigint) THEN
    INSERT INTO __agents_guard (reason) VALUES ('checkpoint');
  ELSE
    INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
    SELECT _session, key, slot, value, 0 FROM __agents_custom_state
    WHERE session_id = _t[_i + 1] AND since < _t[_i + 4]::bigint
    UNION ALL SELECT _session, key, slot, value, 0 FROM __agents_history
    WHERE session_id = _t[_i + 1] AND number > _t[_i + 4]::bigint AND since < _t[_i + 4]::bigint;
  END IF;
  INSERT INTO __agents_long_names (session_id, place, name)
  SELECT _session, place, name FROM __agents_long_names WHERE session_id = _t[_i + 1];
  INSERT INTO __agents_messages (session_id, sequence, message, created_at)
  SELECT _session, sequence, message, created_at FROM __agents_messages
  WHERE session_id = _t[_i + 1] AND (_t[_i + 5] IS NULL OR sequence < _t[_i + 5]::bigint);
  GET DIAGNOSTICS _rows = ROW_COUNT;
  UPDATE __agents_states SET message_count = message_count + _rows WHERE session_id = _session;
  RETURN _rows;
END $part$;

-- Shelf, number of a checkpoint, count of messages: shelve everything after these, and a copy of the checkpoint, which
-- may count shelved messages. Delete new cells before old ones are restored.
-- Returns that count.
CREATE OR REPLACE FUNCTION __agents_commit_shelve(
  _session text, _number bigint, _t text[], _i int, _count bigint, _said int, _checkpoints int
) RETURNS bigint LANGUAGE plpgsql AS $part$
#variable_conflict use_column
DECLARE
  _rows bigint := _t[_i + 3];
BEGIN
  IF _rows > _count OR NOT EXISTS (
      SELECT 1 FROM __agents_checkpoints WHERE session_id = _session AND number = _number) THEN
    INSERT INTO __agents_guard (reason) VALUES ('checkpoint');
  END IF;
  UPDATE __agents_messages SET session_id = _t[_i + 1] WHERE session_id = _session AND sequence >= _rows;
  UPDATE __agents_custom_state SET session_id = _t[_i + 1] WHERE session_id = _session AND since >= _number;
  INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
  SELECT session_id, key, slot, value, since FROM __agents_history
  WHERE session_id = _session AND number > _number AND since < _number;
  UPDATE __agents_past SET session_id = _t[_i + 1] WHERE session_id = _session AND number > _number;
  INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence, kind,
    message_count, status, version, state, created_at, overwritten)
  SELECT _t[_i + 1], number, checkpoint_id, step_id, step_count, stream_sequence, kind, message_count, status, version,
    state, created_at, overwritten FROM __agents_checkpoints WHERE session_id = _session AND number = _number;
  UPDATE __agents_checkpoints SET session_id = _t[_i + 1] WHERE session_id = _session AND number > _number;
  UPDATE __agents_checkpoints SET message_count = _rows
  WHERE session_id = _session AND number = _number AND message_count > _rows;
  UPDATE __agents_staging SET session_id = _t[_i + 1] WHERE session_id = _session;
  UPDATE __agents_states SET message_count = _rows + _said, checkpoint_count = _number + _checkpoints
  WHERE session_id = _session;
  RETURN _rows;
END $part$;

-- Shelf to restore, after the 'shelve' of the current end at the same checkpoint.
-- Returns the number of its last checkpoint, and how many messages were restored.
CREATE OR REPLACE FUNCTION __agents_commit_unshelve(
  _session text, _shelf text, _checkpoints int, INOUT _number bigint, OUT _rows bigint
) LANGUAGE plpgsql AS $part$
#variable_conflict use_column
BEGIN
  DELETE FROM __agents_custom_state AS c USING __agents_history AS h
  WHERE h.session_id = _shelf AND h.number > _number AND h.since < _number
    AND c.session_id = _session AND c.key = h.key AND c.slot = h.slot;
  DELETE FROM __agents_checkpoints WHERE session_id = _session AND number = _number;
  UPDATE __agents_messages SET session_id = _session WHERE session_id = _shelf;
  GET DIAGNOSTICS _rows = ROW_COUNT;
  UPDATE __agents_custom_state SET session_id = _session WHERE session_id = _shelf;
  UPDATE __agents_past SET session_id = _session WHERE session_id = _shelf;
  UPDATE __agents_checkpoints SET session_id = _session WHERE session_id = _shelf;
  UPDATE __agents_staging SET session_id = _session WHERE session_id = _shelf;
  SELECT MAX(number) INTO _number FROM __agents_checkpoints WHERE session_id = _session;
  UPDATE __agents_states SET message_count = message_count + _rows,
    checkpoint_count = _number + _checkpoints
  WHERE session_id = _session;
END $part$;

-- Run, the status and lease it must have, then its new status, step count, error, output, end, lease,
-- first sequence, metadata, details (NULL: unchanged).
CREATE OR REPLACE FUNCTION __agents_commit_change(
  _session text, _number bigint, _t text[], _i int
) RETURNS int LANGUAGE plpgsql AS $part$
#variable_conflict use_column
BEGIN
  UPDATE __agents_runs SET status = COALESCE(_t[_i + 4], status),
    step_count = COALESCE(_t[_i + 5]::bigint, step_count), error = COALESCE(_t[_i + 6], error),
    output = COALESCE(_t[_i + 7], output), completed_at = COALESCE(_t[_i + 8]::bigint, completed_at),
    lease_until = COALESCE(_t[_i + 9]::bigint, lease_until),
    start_sequence = COALESCE(_t[_i + 10]::bigint, start_sequence), metadata = COALESCE(_t[_i + 11], metadata),
    details = COALESCE(_t[_i + 12], details)
  WHERE run_id = _t[_i + 1] AND session_id = _session AND status = _t[_i + 2]
    AND lease_until IS NOT DISTINCT FROM _t[_i + 3]::bigint;
  IF NOT FOUND THEN
    INSERT INTO __agents_guard (reason) VALUES ('lease');
  END IF;
  RETURN _i + 13;
END $part$;

-- Session, agent type, tool call, status, mode, name, remote, begin, end: a known ref keeps its position.
CREATE OR REPLACE FUNCTION __agents_commit_ref(
  _session text, _number bigint, _t text[], _i int
) RETURNS int LANGUAGE plpgsql AS $part$
#variable_conflict use_column
BEGIN
  INSERT INTO __agents_sub_session_refs (session_id, sub_session_id, position, agent_type, parent_tool_call_id,
    status, mode, name, remote_json, started_at, completed_at)
  SELECT _session, _t[_i + 1], COALESCE(max(position), 0) + 1, _t[_i + 2], _t[_i + 3], _t[_i + 4], _t[_i + 5],
    _t[_i + 6], _t[_i + 7], _t[_i + 8]::bigint, _t[_i + 9]::bigint
  FROM __agents_sub_session_refs WHERE session_id = _session
  ON CONFLICT (session_id, sub_session_id) DO UPDATE SET agent_type = excluded.agent_type,
    parent_tool_call_id = excluded.parent_tool_call_id, status = excluded.status, mode = excluded.mode,
    name = excluded.name, remote_json = excluded.remote_json, started_at = excluded.started_at,
    completed_at = excluded.completed_at;
  RETURN _i + 10;
END $part$;

-- Changes that need only their texts. Returns the position of the next word.
CREATE OR REPLACE FUNCTION __agents_commit_other(
  _session text, _number bigint, _t text[], _i int
) RETURNS int LANGUAGE plpgsql AS $part$
#variable_conflict use_column
BEGIN
  CASE _t[_i]
    WHEN 'change' THEN
      RETURN __agents_commit_change(_session, _number, _t, _i);
    WHEN 'ref' THEN
      RETURN __agents_commit_ref(_session, _number, _t, _i);
    WHEN 'stage' THEN
      -- Step, kind, tool call, position, writes, result, token, time.
      DELETE FROM __agents_staging
      WHERE session_id = _session AND step_id = _t[_i + 1] AND kind = _t[_i + 2] AND tool_call_id = _t[_i + 3];
      INSERT INTO __agents_staging (session_id, step_id, kind, tool_call_id, position, writes, result, token, staged_at)
      VALUES (_session, _t[_i + 1], _t[_i + 2], _t[_i + 3], _t[_i + 4]::bigint, _t[_i + 5], _t[_i + 6], _t[_i + 7],
        _t[_i + 8]::bigint);
      RETURN _i + 9;
    WHEN 'name' THEN
      -- A short form of a name that is too long for an index, and the name.
      INSERT INTO __agents_long_names (session_id, place, name) VALUES (_session, _t[_i + 1], _t[_i + 2])
      ON CONFLICT (session_id, place) DO NOTHING;
      RETURN _i + 3;
    WHEN 'clear flag' THEN
      DELETE FROM __agents_interrupt_flags WHERE session_id = _session;
      RETURN _i + 1;
    WHEN 'flag' THEN
      -- Reason, run, time, whether it is an abort.
      INSERT INTO __agents_interrupt_flags (session_id, reason, run_id, timestamp, abort)
      VALUES (_session, _t[_i + 1], _t[_i + 2], _t[_i + 3]::bigint, _t[_i + 4]::bigint)
      ON CONFLICT (session_id) DO UPDATE SET reason = excluded.reason, run_id = excluded.run_id,
        timestamp = excluded.timestamp, abort = excluded.abort;
      RETURN _i + 5;
    WHEN 'branch' THEN
      -- Id, shelf, the branch's record, its state (NULL: unchanged).
      INSERT INTO __agents_branches AS b (session_id, branch_id, shelf, about, state)
      VALUES (_session, _t[_i + 1], _t[_i + 2], _t[_i + 3], _t[_i + 4])
      ON CONFLICT (session_id, branch_id) DO UPDATE SET about = excluded.about,
        state = COALESCE(excluded.state, b.state);
      RETURN _i + 5;
    WHEN 'drop branch' THEN
      -- Id, shelf: delete the branch.
      DELETE FROM __agents_messages WHERE session_id = _t[_i + 2];
      DELETE FROM __agents_custom_state WHERE session_id = _t[_i + 2];
      DELETE FROM __agents_past WHERE session_id = _t[_i + 2];
      DELETE FROM __agents_checkpoints WHERE session_id = _t[_i + 2];
      DELETE FROM __agents_staging WHERE session_id = _t[_i + 2];
      DELETE FROM __agents_branches WHERE session_id = _session AND branch_id = _t[_i + 1];
      RETURN _i + 3;
    ELSE
      RAISE EXCEPTION 'There is no change called %.', _t[_i];
  END CASE;
END $part$;

-- Change the row of the session, see above. Undoes everything if that is impossible.
CREATE OR REPLACE FUNCTION __agents_commit_row(
  _session text, _now bigint, _incarnation text, _epoch bigint, _expected bigint, _new_epoch bigint, _bump int,
  _checkpoints int, _steps bigint, _resumes bigint, _expires_at bigint, _due_at bigint, _said int, _t text[],
  OUT _version bigint, OUT _count bigint, OUT _number bigint, OUT _step_count bigint, OUT _resume_count bigint,
  OUT _status text
) LANGUAGE plpgsql AS $part$
#variable_conflict use_column
BEGIN
  IF _t[1] IN ('state', 'restore') THEN
    SELECT * INTO _version, _count, _number, _step_count, _resume_count, _status FROM __agents_commit_state(
      _session, _now, _incarnation, _epoch, _expected, _new_epoch, _bump, _checkpoints, _steps, _resumes, _expires_at,
      _due_at, _said, _t);
  ELSIF _t[1] = 'touch' THEN
    SELECT * INTO _version, _count, _number, _step_count, _resume_count, _status FROM __agents_commit_touch(
      _session, _now, _incarnation, _epoch, _expected, _new_epoch, _bump, _checkpoints, _steps, _resumes, _expires_at,
      _due_at, _said, _t);
  ELSE
    SELECT * INTO _version, _count, _number, _step_count, _resume_count, _status FROM __agents_commit_create(
      _session, _now, _incarnation, _epoch, _expected, _new_epoch, _bump, _checkpoints, _steps, _resumes, _expires_at,
      _due_at, _said, _t);
  END IF;
  IF _version IS NULL THEN
    INSERT INTO __agents_guard (reason) SELECT COALESCE((
      SELECT CASE WHEN incarnation <> _incarnation THEN 'missing' WHEN version <> _expected THEN 'version'
        WHEN owner_epoch <> _epoch OR owner_epoch >= _new_epoch THEN 'epoch' ELSE 'version' END
      FROM __agents_states WHERE session_id = _session), 'missing');
  END IF;
END $part$;

-- The changes that follow the row, in order.
CREATE OR REPLACE FUNCTION __agents_commit_changes(
  _session text, _now bigint, _due_at bigint, _checkpoints int, _said int, _status text, _version bigint, _t text[],
  INOUT _count bigint, INOUT _number bigint, OUT _removed bigint, OUT _turn bigint, OUT _kept json[], OUT _cells text[]
) LANGUAGE plpgsql AS $part$
#variable_conflict use_column
DECLARE
  _i int := CASE WHEN _t[1] = 'touch' THEN 2 ELSE 20 END;
  _rows bigint;
  _text text;
BEGIN
  _removed := 0;
  _turn := 0;
  WHILE _i <= cardinality(_t) LOOP
    CASE _t[_i]
      WHEN 'expect', 'set', 'put', 'key' THEN
        _kept := _kept || __agents_commit_cell(_session, _number, _t, _i);
        _i := _i + 5;
      WHEN 'append' THEN
        _i := __agents_commit_append(_session, _number, _t, _i);
      WHEN 'promote' THEN
        _i := __agents_commit_promote(_session, _number, _t, _i);
      WHEN 'checkpoint' THEN
        _i := __agents_commit_checkpoint(_session, _number, _t, _i, _now, _count, _version, _kept);
        _kept := NULL;
      WHEN 'want' THEN -- key, slot: return the text of that cell
        SELECT value INTO _text FROM __agents_custom_state
        WHERE session_id = _session AND key = _t[_i + 1] AND slot = _t[_i + 2];
        _cells := _cells || _text;
        _i := _i + 3;
      WHEN 'keys', 'all' THEN
        _kept := _kept || __agents_commit_keys(_session, _number, _t, _i);
        _i := _i + 2 + 3 * _t[_i + 1]::int;
      WHEN 'from' THEN
        -- The previous status must be one of these: '|active|paused|'.
        IF strpos(_t[_i + 1], '|' || _status || '|') = 0 THEN
          INSERT INTO __agents_guard (reason) VALUES ('version');
        END IF;
        _i := _i + 2;
      WHEN 'status' THEN
        UPDATE __agents_states SET status = _t[_i + 1], due_at = _due_at
        WHERE session_id = _session AND status <> _t[_i + 1];
        _i := _i + 2;
      WHEN 'keep' THEN
        _rows := __agents_commit_keep(_session, _count - _said, _said, _t[_i + 1]::bigint);
        _removed := _removed + _rows;
        _count := _count - _rows;
        _i := _i + 2;
      WHEN 'restore' THEN
        _number := __agents_commit_restore(_session, _t[_i + 1]::bigint);
        _i := _i + 2;
      WHEN 'shelve' THEN
        _number := _t[_i + 2];
        _count := __agents_commit_shelve(_session, _number, _t, _i, _count - _said, _said, _checkpoints) + _said;
        _i := _i + 4;
      WHEN 'unshelve' THEN
        SELECT * INTO _number, _rows FROM __agents_commit_unshelve(_session, _t[_i + 1], _checkpoints, _number);
        _count := _count + _rows;
        _i := _i + 2;
      WHEN 'discard' THEN
        _removed := _removed + __agents_commit_discard(_session, _t[_i + 1]);
        _i := _i + 2;
      WHEN 'run' THEN
        _turn := __agents_commit_run(_session, _number, _t, _i);
        _i := _i + 10;
      WHEN 'copy' THEN
        _count := __agents_commit_copy(_session, _number, _t, _i) + _said;
        _i := _i + 6;
      ELSE
        _i := __agents_commit_other(_session, _number, _t, _i);
    END CASE;
  END LOOP;
END $part$;

-- Guards, NULL for any: _incarnation, _epoch and _expected (version) must equal the session's, _new_epoch exceed its epoch.
-- Returns version, message count, step count, resume count, removed, turn, and the texts of the cells wanted.
CREATE OR REPLACE FUNCTION __agents_commit(
  _session text, _now bigint, _incarnation text, _epoch bigint, _expected bigint, _new_epoch bigint, _bump int,
  _checkpoints int, _steps bigint, _resumes bigint, _expires_at bigint, _due_at bigint, _messages text[], _t text[]
) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $commit$
#variable_conflict use_column
DECLARE
  _said int := cardinality(_messages);
  _version bigint;
  _count bigint;
  _number bigint;
  _step_count bigint;
  _resume_count bigint;
  _status text; -- before this commit
  _removed bigint;
  _turn bigint;
  _text text;
  _kept json[];
  _cells text[];
BEGIN
  SELECT * INTO _version, _count, _number, _step_count, _resume_count, _status FROM __agents_commit_row(
      _session, _now, _incarnation, _epoch, _expected, _new_epoch, _bump, _checkpoints, _steps, _resumes, _expires_at,
      _due_at, _said, _t);
  SELECT * INTO _count, _number, _removed, _turn, _kept, _cells FROM __agents_commit_changes(
    _session, _now, _due_at, _checkpoints, _said, _status, _version, _t, _count, _number);
  IF _kept IS NOT NULL THEN
    INSERT INTO __agents_past (session_id, number, key, slot, value, since)
    SELECT _session, _number + 1, c->>0, c->>1, c->>2, (c->>3)::bigint FROM unnest(_kept) AS u (c);
  END IF;
  IF _said > 0 THEN
    INSERT INTO __agents_messages (session_id, sequence, message, created_at)
    SELECT _session, _count - _said - 1 + generate_subscripts(_messages, 1), unnest(_messages), _now;
  END IF;
  _text := concat_ws(',', _version, _count, _step_count, _resume_count, _removed, _turn);
  RETURN CASE WHEN _cells IS NULL THEN _text ELSE _text || chr(30) || array_to_string(_cells, chr(30), chr(31)) END;
END $commit$
