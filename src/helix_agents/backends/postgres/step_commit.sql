-- The commit that ends a step, as one function: what `CommitBatch` says in a dozen statements of queries.sql, in two.
-- A measured shortcut for the most frequent write; everything it does not speak of goes the general way.
-- The first statement takes the session's row, so that the other, which begins after that, looks at what stands still.
-- A guard that is violated undoes everything.
CREATE OR REPLACE FUNCTION __agents_step_commit(
  _session text, _expected bigint, _now bigint,
  _agent_type text, _stream_id text, _parent text, _root text, _status text, _expires_at bigint, _user_id text,
  _tags text, _metadata text,
  _step_count bigint, _resume_count bigint, _output text, _error text, _failure_reason text, _pending text,
  _completed text, _suspension text, _interrupt text,
  _messages text[], _promoted text, _tokens text[],
  _seen_keys text[], _seen_slots text[], _seen_texts text[],
  _put_keys text[], _put_slots text[], _put_texts text[],
  _list_keys text[], _list_places int[], _list_texts text[],
  _checkpoint_id text, _step_id text, _stream_sequence bigint, _fields text
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $commit$
DECLARE
  _version bigint;
  _count bigint;
  _number bigint; -- of the checkpoint before this one, as cells count them
  _relabel bool;
BEGIN
  UPDATE __agents_states SET updated_at = _now, version = version + 1,
    message_count = message_count + cardinality(_messages), checkpoint_count = checkpoint_count + 1,
    step_count = _step_count, resume_count = _resume_count, output = _output, error = _error,
    failure_reason = _failure_reason, pending_client_tool_calls = _pending,
    completed_client_tool_calls = _completed, suspension_context = _suspension, interrupt_context = _interrupt
  WHERE session_id = _session AND (_expected IS NULL OR version = _expected)
  RETURNING version, message_count, checkpoint_count - 1, agent_type <> _agent_type OR stream_id <> _stream_id
    OR parent_session_id IS DISTINCT FROM _parent OR root_session_id IS DISTINCT FROM _root OR status <> _status
    OR expires_at IS DISTINCT FROM _expires_at OR user_id IS DISTINCT FROM _user_id OR tags <> _tags
    OR metadata <> _metadata INTO _version, _count, _number, _relabel;
  IF NOT FOUND THEN
    INSERT INTO __agents_guard (reason) SELECT CASE WHEN EXISTS (
      SELECT 1 FROM __agents_states WHERE session_id = _session) THEN 'version' ELSE 'missing' END;
  END IF;

  IF _relabel THEN
    -- What indexes hold is written only if it differs; naming it at all would wake the triggers.
    UPDATE __agents_states SET agent_type = _agent_type, stream_id = _stream_id, parent_session_id = _parent,
      root_session_id = _root, status = _status, expires_at = _expires_at, user_id = _user_id, tags = _tags,
      metadata = _metadata WHERE session_id = _session;
  END IF;

  WITH gone AS (
    DELETE FROM __agents_staging WHERE session_id = _session AND step_id = _promoted RETURNING token
  ), refused AS (
    INSERT INTO __agents_guard (reason)
    SELECT CASE WHEN g.staged THEN 'staged' ELSE 'cells' END
    FROM (SELECT
      (SELECT COUNT(*) <> cardinality(_tokens) OR COUNT(*) FILTER (WHERE token = ANY (_tokens)) <> COUNT(*) FROM gone)
        AS staged,
      EXISTS (SELECT 1 FROM (
        SELECT unnest(_seen_keys) AS key, unnest(_seen_slots) AS slot, unnest(_seen_texts) AS text) AS e
        WHERE e.text IS DISTINCT FROM (
          SELECT c.value FROM __agents_custom_state AS c
          WHERE c.session_id = _session AND c.died IS NULL AND c.key = e.key AND c.slot = e.slot)) AS cells) AS g
    WHERE g.staged OR g.cells
  ), kept AS (
    INSERT INTO __agents_custom_state (session_id, key, slot, value, born, died)
    SELECT _session, g.key, g.slot, c.value, c.born, _number
    FROM (
      SELECT unnest(_put_keys) AS key, unnest(_put_slots) AS slot, unnest(_put_texts) AS text) AS g, LATERAL (
      SELECT l.value, l.born FROM __agents_custom_state AS l
      WHERE l.session_id = _session AND l.died IS NULL AND l.key = g.key AND l.slot = g.slot OFFSET 0) AS c
    WHERE c.value <> g.text AND c.born < _number
  ), put AS (
    INSERT INTO __agents_custom_state AS c (session_id, key, slot, value, born)
    SELECT _session, unnest(_put_keys), unnest(_put_slots), unnest(_put_texts), _number
    UNION ALL SELECT _session, g.key, '#' || lpad((COALESCE((
        SELECT CAST(substr(l.slot, 2) AS BIGINT) FROM __agents_custom_state AS l
        WHERE l.session_id = _session AND l.key = g.key AND l.died IS NULL
          AND l.slot >= '#' AND l.slot < '$'
        ORDER BY l.slot DESC LIMIT 1), -1) + g.place)::text, 10, '0'), g.text, _number
    FROM (
      SELECT unnest(_list_keys) AS key, unnest(_list_places) AS place, unnest(_list_texts) AS text) AS g
    ON CONFLICT (session_id, key, slot) WHERE died IS NULL DO UPDATE SET value = excluded.value, born = excluded.born
    WHERE c.value <> excluded.value
  ), said AS (
    INSERT INTO __agents_messages (session_id, sequence, message, created_at)
    SELECT _session, _count - cardinality(_messages) - 1 + generate_subscripts(_messages, 1), unnest(_messages), _now
  )
  INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence,
    message_count, status, version, state, created_at)
  VALUES (_session, _number + 1, _checkpoint_id, _step_id, _step_count, _stream_sequence, _count, _status, _version,
    _fields, _now);
  RETURN ARRAY[_version, _count, _step_count, _resume_count];
END $commit$
