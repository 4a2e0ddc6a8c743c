-- The statements of a planned commit, for a writer that locks the database and reads before it writes.
-- Everything is found by one index entry, and values are bound where queries.sql has to compute them in place.
-- A name with _rows does the same for any number of rows at once: :rows is replaced by that many.
-- Parameters have no numbers: Python 3.12.0 to 3.12.3 warns about each numbered one, which takes longer than binding it.

-- name: session
-- The position of a request, the session's counters, its staged rows for a step, whether it has only counters, its
-- identity, its indexed fields. The parameters are position, step and session; the first is returned.
SELECT ?, s.rowid, s.version, s.message_count, s.checkpoint_count, s.step_count, s.resume_count,
  s.owner_epoch, s.status,
  (SELECT group_concat(kind || char(31) || tool_call_id || char(31) || token, char(30)) FROM __agents_staging AS t
   WHERE t.session_id = s.session_id AND t.step_id = ?),
  COALESCE(s.output, s.error, s.failure_reason, s.pending_client_tool_calls, s.completed_client_tool_calls,
    s.suspension_context, s.interrupt_context) IS NULL,
  s.incarnation, s.created_at, s.agent_type, s.user_id,
  s.stream_id, s.parent_session_id, s.root_session_id, s.status, s.expires_at, s.due_at, s.tags, s.metadata
FROM __agents_states AS s WHERE s.session_id = ?;

-- name: session_rows
-- The same.
SELECT v.column1, s.rowid, s.version, s.message_count, s.checkpoint_count, s.step_count, s.resume_count,
  s.owner_epoch, s.status,
  (SELECT group_concat(kind || char(31) || tool_call_id || char(31) || token, char(30)) FROM __agents_staging AS t
   WHERE t.session_id = s.session_id AND t.step_id = v.column2),
  COALESCE(s.output, s.error, s.failure_reason, s.pending_client_tool_calls, s.completed_client_tool_calls,
    s.suspension_context, s.interrupt_context) IS NULL,
  s.incarnation, s.created_at, s.agent_type, s.user_id,
  s.stream_id, s.parent_session_id, s.root_session_id, s.status, s.expires_at, s.due_at, s.tags, s.metadata
FROM (VALUES :rows) AS v CROSS JOIN __agents_states AS s ON s.session_id = v.column3;

-- name: source_rows
-- The counters of a session that is copied.
SELECT v.column1, s.incarnation, s.version, s.message_count, s.checkpoint_count
FROM (VALUES :rows) AS v CROSS JOIN __agents_states AS s ON s.session_id = v.column2;

-- name: cells
-- The cells of a key from one slot to another. The first parameter is returned.
SELECT ?, slot, value, since FROM __agents_custom_state
WHERE session_id = ? AND key = ? AND slot >= ? AND slot <= ?;

-- name: cells_rows
-- The same.
SELECT v.column1, c.slot, c.value, c.since FROM (VALUES :rows) AS v CROSS JOIN __agents_custom_state AS c
  ON c.session_id = v.column2 AND c.key = v.column3 AND c.slot >= v.column4 AND c.slot <= v.column5;

-- name: all_cells_rows
-- All cells of a session.
SELECT v.column1, c.key, c.slot, c.value, c.since FROM (VALUES :rows) AS v CROSS JOIN __agents_custom_state AS c
  ON c.session_id = v.column2;

-- name: tail
-- The last item of the list under a key; the key's own cell if there are no items ('' sorts before '#').
SELECT ?, slot, value FROM __agents_custom_state
WHERE session_id = ? AND key = ? AND slot < '$' ORDER BY slot DESC LIMIT 1;

-- name: tail_rows
-- The same.
SELECT v.column1, c.slot, c.value FROM (VALUES :rows) AS v CROSS JOIN __agents_custom_state AS c
  ON c.session_id = v.column2 AND c.key = v.column3 AND c.slot = (SELECT t.slot FROM __agents_custom_state AS t
    WHERE t.session_id = v.column2 AND t.key = v.column3 AND t.slot < '$' ORDER BY t.slot DESC LIMIT 1);

-- name: discarded_rows
-- The number of staged rows for a step, or for all steps if it is NULL.
SELECT v.column1, COUNT(*) FROM (VALUES :rows) AS v CROSS JOIN __agents_staging AS t
  ON t.session_id = v.column2 AND (v.column3 IS NULL OR t.step_id = v.column3) GROUP BY v.column1;

-- name: shelf_rows
-- The last message and the last checkpoint on a shelf.
SELECT v.column1, (SELECT MAX(sequence) FROM __agents_messages WHERE session_id = v.column2), (
  SELECT MAX(number) FROM __agents_checkpoints WHERE session_id = v.column2) FROM (VALUES :rows) AS v;

-- name: turns_rows
-- Whether a run exists, and the turn of a session's latest run.
SELECT v.column1, EXISTS (SELECT 1 FROM __agents_runs WHERE run_id = v.column2), COALESCE((
  SELECT turn FROM __agents_runs WHERE session_id = v.column3 ORDER BY position DESC LIMIT 1), 0)
FROM (VALUES :rows) AS v;

-- name: lease_rows
-- Status and lease of a run of the session.
SELECT v.column1, r.status, r.lease_until FROM (VALUES :rows) AS v
JOIN __agents_runs AS r ON r.run_id = v.column2 AND r.session_id = v.column3;

-- name: insert_session_rows
-- Create sessions.
INSERT INTO __agents_states (session_id, created_at, updated_at, version, message_count, checkpoint_count, step_count,
  resume_count, owner_epoch, incarnation, agent_type, user_id, stream_id, parent_session_id, root_session_id, status,
  expires_at, due_at, tags, metadata, output, error, failure_reason, pending_client_tool_calls, completed_client_tool_calls, suspension_context,
  interrupt_context, forked_from) VALUES :rows;

-- name: count
-- Store the counters.
UPDATE __agents_states SET updated_at = ?, version = ?, message_count = ?, checkpoint_count = ?, step_count = ?,
  resume_count = ?, owner_epoch = ?
WHERE rowid = ?;

-- name: count_rows
-- The same.
UPDATE __agents_states SET updated_at = column1, version = column2, message_count = column3,
  checkpoint_count = column4, step_count = column5, resume_count = column6, owner_epoch = column7
FROM (VALUES :rows) WHERE __agents_states.rowid = column8;

-- name: describe
-- Store the other fields without an index.
UPDATE __agents_states SET output = ?, error = ?, failure_reason = ?, pending_client_tool_calls = ?,
  completed_client_tool_calls = ?, suspension_context = ?, interrupt_context = ?
WHERE rowid = ?;

-- name: describe_rows
-- The same.
UPDATE __agents_states SET output = column1, error = column2, failure_reason = column3,
  pending_client_tool_calls = column4, completed_client_tool_calls = column5, suspension_context = column6,
  interrupt_context = column7
FROM (VALUES :rows) WHERE __agents_states.rowid = column8;

-- name: relabel
-- Store the indexed fields.
UPDATE __agents_states SET stream_id = ?, parent_session_id = ?, root_session_id = ?, status = ?, expires_at = ?,
  due_at = ?, tags = ?, metadata = ?
WHERE rowid = ?;

-- name: relabel_rows
-- The same.
UPDATE __agents_states SET stream_id = column1, parent_session_id = column2, root_session_id = column3,
  status = column4, expires_at = column5, due_at = column6, tags = column7, metadata = column8
FROM (VALUES :rows) WHERE __agents_states.rowid = column9;

-- name: set_status
-- Store the status alone; it does not suspend the session.
UPDATE __agents_states SET status = ?, due_at = NULL WHERE rowid = ?;

-- name: set_status_rows
-- The same.
UPDATE __agents_states SET status = column1, due_at = NULL FROM (VALUES :rows) WHERE __agents_states.rowid = column2;

-- name: unstage
-- Drop the staged rows of the step.
DELETE FROM __agents_staging WHERE session_id = ? AND step_id = ?;

-- name: unstage_rows
-- The same.
DELETE FROM __agents_staging WHERE (session_id, step_id) IN (VALUES :rows);

-- name: stage_rows
-- Stage what tool calls wrote; staging a call again replaces its row.
INSERT INTO __agents_staging (session_id, step_id, kind, tool_call_id, position, writes, result, token, staged_at)
VALUES :rows
ON CONFLICT (session_id, step_id, kind, tool_call_id) DO UPDATE SET position = excluded.position,
  writes = excluded.writes, result = excluded.result, token = excluded.token, staged_at = excluded.staged_at;

-- name: put_cell_rows
-- Store cells.
INSERT INTO __agents_custom_state (session_id, key, slot, value, since) VALUES :rows
ON CONFLICT (session_id, key, slot) DO UPDATE SET value = excluded.value, since = excluded.since;

-- name: drop_cell_rows
-- Remove cells.
DELETE FROM __agents_custom_state WHERE (session_id, key, slot) IN (VALUES :rows);

-- name: keep_cell_rows
-- Store the old texts of cells.
INSERT INTO __agents_past (session_id, number, key, slot, value, since) VALUES :rows;

-- name: insert_message_rows
-- Append messages.
INSERT INTO __agents_messages (session_id, sequence, message, created_at) VALUES :rows;

-- name: insert_checkpoint_rows
-- Record the commits.
INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence,
  kind, message_count, status, version, state, created_at, overwritten) VALUES :rows;
