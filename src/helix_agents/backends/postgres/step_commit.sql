-- The commit that ends a step, as one function: what `CommitBatch` says in a dozen statements of queries.sql.
-- A measured shortcut for the most frequent write; everything it does not speak of goes the general way.
-- The first statement takes the session's row, so that all others look at what stands still. Every statement is a small
-- one that finds its row by an index: one large statement with CTEs took longer, most of it to set itself up.
-- A guard that is violated undoes everything.
CREATE OR REPLACE FUNCTION __agents_refuse(_reason text) RETURNS bool LANGUAGE plpgsql AS $refuse$
BEGIN
  INSERT INTO __agents_guard (reason) VALUES (_reason);
  RETURN true;
END $refuse$;

-- _texts, short ones, one after the other with chr(30) in between, empty for NULL:
--   1 session, 2 step, 3 step whose staging is promoted, 4 checkpoint, 5 fields of the checkpoint,
--   6-13 agent_type, stream_id, parent, root, status, user_id, tags, metadata,
--   14-18 output, pending, completed, suspension, interrupt,
--   tokens of the staged rows;
--   cells, four texts each: key, slot, text that it must hold (NULL: must not be there), new text (NULL: stays);
--   items to append, three texts each: key, a slot that the last item is not before, text.
-- Answers version and message count, and the index of the last item of each list that was appended to.
CREATE OR REPLACE FUNCTION __agents_step_commit(
  _expected bigint, _now bigint, _step_count bigint, _resume_count bigint, _stream_sequence bigint, _expires_at bigint,
  _is_plain bool, _error text, _failure_reason text, _messages text[], _tokens int, _cells int, _texts text
) RETURNS bigint[] LANGUAGE plpgsql SET enable_seqscan = off AS $commit$
DECLARE
  _t text[] := string_to_array(_texts, chr(30), '');
  _session text := _t[1];
  _said int := cardinality(_messages);
  _from int := 18; -- the texts before the next part
  _version bigint;
  _count bigint;
  _number bigint; -- of the checkpoint before this one, as cells count them
  _relabel bool;
  _rows bigint;
  _key text;
  _slot text;
  _seen text;
  _text text;
  _value text;
  _since bigint;
  _overwritten json[];
  _ends bigint[];
BEGIN
  IF _is_plain THEN
    UPDATE __agents_states SET updated_at = _now, version = version + 1, message_count = message_count + _said,
      checkpoint_count = checkpoint_count + 1, step_count = _step_count, resume_count = _resume_count, output = NULL,
      error = NULL, failure_reason = NULL, pending_client_tool_calls = NULL, completed_client_tool_calls = NULL,
      suspension_context = NULL, interrupt_context = NULL
    WHERE session_id = _session AND (_expected IS NULL OR version = _expected)
    RETURNING version, message_count, checkpoint_count - 1, expires_at IS DISTINCT FROM _expires_at OR _t[6:13] <>
      ARRAY[agent_type, stream_id, parent_session_id, root_session_id, status, user_id, tags, metadata]
    INTO _version, _count, _number, _relabel;
  ELSE
    UPDATE __agents_states SET updated_at = _now, version = version + 1, message_count = message_count + _said,
      checkpoint_count = checkpoint_count + 1, step_count = _step_count, resume_count = _resume_count, output = _t[14],
      error = _error, failure_reason = _failure_reason, pending_client_tool_calls = _t[15],
      completed_client_tool_calls = _t[16], suspension_context = _t[17], interrupt_context = _t[18]
    WHERE session_id = _session AND (_expected IS NULL OR version = _expected)
    RETURNING version, message_count, checkpoint_count - 1, expires_at IS DISTINCT FROM _expires_at OR _t[6:13] <>
      ARRAY[agent_type, stream_id, parent_session_id, root_session_id, status, user_id, tags, metadata]
    INTO _version, _count, _number, _relabel;
  END IF;
  IF _version IS NULL THEN
    PERFORM __agents_refuse(CASE WHEN EXISTS (SELECT 1 FROM __agents_states WHERE session_id = _session)
      THEN 'version' ELSE 'missing' END);
  END IF;

  IF _relabel THEN
    -- What indexes hold is written only if it differs; naming it at all would wake the triggers.
    UPDATE __agents_states SET agent_type = _t[6], stream_id = _t[7], parent_session_id = _t[8],
      root_session_id = _t[9], status = _t[10], user_id = _t[11], tags = _t[12], metadata = _t[13],
      expires_at = _expires_at WHERE session_id = _session;
  END IF;

  IF _t[3] IS NOT NULL THEN
    DELETE FROM __agents_staging WHERE session_id = _session AND step_id = _t[3]
      AND CASE WHEN token = ANY (_t[_from + 1:_from + _tokens]) THEN true ELSE __agents_refuse('staged') END;
    GET DIAGNOSTICS _rows = ROW_COUNT;
    IF _rows <> _tokens THEN
      PERFORM __agents_refuse('staged');
    END IF;
  END IF;
  _from := _from + _tokens;

  FOR _i IN _from + 1.._from + _cells * 4 BY 4 LOOP
    _key := COALESCE(_t[_i], '');
    _slot := COALESCE(_t[_i + 1], '');
    _seen := _t[_i + 2];
    _text := _t[_i + 3];
    IF _seen IS NOT NULL AND _text IS NOT NULL THEN
      SELECT since INTO _since FROM __agents_custom_state
      WHERE session_id = _session AND key = _key AND slot = _slot AND value = _seen;
      IF NOT FOUND THEN
        PERFORM __agents_refuse('cells');
      END IF;
      IF _since < _number THEN
        -- What the cell held is kept for the checkpoints that have seen it.
        _overwritten := _overwritten || json_build_array(_key, _slot, _seen, _since);
      END IF;
      UPDATE __agents_custom_state SET value = _text, since = _number
      WHERE session_id = _session AND key = _key AND slot = _slot;
    ELSE
      SELECT value INTO _value FROM __agents_custom_state
      WHERE session_id = _session AND key = _key AND slot = _slot;
      IF _value IS DISTINCT FROM _seen THEN
        PERFORM __agents_refuse('cells');
      END IF;
      IF _text IS NOT NULL THEN
        INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
        VALUES (_session, _key, _slot, _text, _number);
      END IF;
    END IF;
  END LOOP;
  _from := _from + _cells * 4;

  _key := NULL; -- from here on, of the list that is being appended to
  FOR _i IN _from + 1..cardinality(_t) BY 3 LOOP
    IF _key IS DISTINCT FROM COALESCE(_t[_i], '') THEN
      IF _key IS NOT NULL THEN
        _ends := _ends || substr(_slot, 2)::bigint;
      END IF;
      _key := COALESCE(_t[_i], '');
      _slot := _t[_i + 1];
    END IF;
    -- The nearer the slot is to the end of the list, the less of the index is read.
    INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
    SELECT _session, _key, '#' || lpad((substr(l.slot, 2)::bigint + 1)::text, 10, '0'), _t[_i + 2], _number
    FROM __agents_custom_state AS l
    WHERE l.session_id = _session AND l.key = _key AND l.slot >= _slot AND l.slot < '$'
    ORDER BY l.slot DESC LIMIT 1 RETURNING slot INTO _slot;
    IF NOT FOUND THEN
      -- The list is shorter than was thought, perhaps empty, perhaps no list any more.
      SELECT value INTO _value FROM __agents_custom_state
      WHERE session_id = _session AND key = _key AND slot = '';
      IF _value IS DISTINCT FROM '[' THEN
        PERFORM __agents_refuse('cells');
      END IF;
      SELECT max(slot) INTO _slot FROM __agents_custom_state
      WHERE session_id = _session AND key = _key AND slot >= '#' AND slot < '$';
      _slot := '#' || lpad((COALESCE(substr(_slot, 2)::bigint, -1) + 1)::text, 10, '0');
      INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
      VALUES (_session, _key, _slot, _t[_i + 2], _number);
    END IF;
  END LOOP;

  IF _said > 0 THEN
    INSERT INTO __agents_messages (session_id, sequence, message, created_at)
    SELECT _session, _count - _said - 1 + generate_subscripts(_messages, 1), unnest(_messages), _now;
  END IF;
  INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence,
    message_count, status, version, state, created_at, overwritten)
  VALUES (_session, _number + 1, _t[4], _t[2], _step_count, _stream_sequence, _count, _t[10], _version, _t[5], _now,
    array_to_json(_overwritten)::text);
  IF _key IS NULL THEN
    RETURN ARRAY[_version, _count];
  ELSIF _ends IS NULL THEN
    RETURN ARRAY[_version, _count, substr(_slot, 2)::bigint];
  END IF;
  RETURN ARRAY[_version, _count] || _ends || substr(_slot, 2)::bigint;
END $commit$
