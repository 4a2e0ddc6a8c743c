-- The statements of commits that store a session, for a writer that holds the database and looks before it writes.
-- Everything is found by one index entry, and values are bound where queries.sql has to compute them in place.
-- A name with _rows does the same for any number of rows at once: :rows stands for as many as there are.
-- Parameters have no numbers: Python 3.12 up to 3.12.3 warns of each that has one, which takes longer than to bind it.

-- name: session
-- Where a session is, what it counts, what is staged for a step of it, whether it has no content but counters, the
-- fields that indexes hold. The first of place, step and session comes back.
SELECT ?, s.rowid, s.version, s.message_count, s.checkpoint_count,
  (SELECT group_concat(tool_call_id || char(31) || token, char(30)) FROM __agents_staging AS t
   WHERE t.session_id = s.session_id AND t.step_id = ?),
  COALESCE(s.output, s.error, s.failure_reason, s.pending_client_tool_calls, s.completed_client_tool_calls,
    s.suspension_context, s.interrupt_context) IS NULL,
  s.agent_type, s.stream_id, s.parent_session_id, s.root_session_id, s.status, s.expires_at, s.user_id, s.tags,
  s.metadata
FROM __agents_states AS s WHERE s.session_id = ?;

-- name: session_rows
-- The same.
SELECT v.column1, s.rowid, s.version, s.message_count, s.checkpoint_count,
  (SELECT group_concat(tool_call_id || char(31) || token, char(30)) FROM __agents_staging AS t
   WHERE t.session_id = s.session_id AND t.step_id = v.column2),
  COALESCE(s.output, s.error, s.failure_reason, s.pending_client_tool_calls, s.completed_client_tool_calls,
    s.suspension_context, s.interrupt_context) IS NULL,
  s.agent_type, s.stream_id, s.parent_session_id, s.root_session_id, s.status, s.expires_at, s.user_id, s.tags,
  s.metadata
FROM (VALUES :rows) AS v CROSS JOIN __agents_states AS s ON s.session_id = v.column3;

-- name: cell
-- A cell as it is now. The first parameter comes back.
SELECT ?, value, since FROM __agents_custom_state WHERE session_id = ? AND key = ? AND slot = ?;

-- name: cell_rows
-- The same.
SELECT v.column1, c.value, c.since FROM (VALUES :rows) AS v CROSS JOIN __agents_custom_state AS c
  ON c.session_id = v.column2 AND c.key = v.column3 AND c.slot = v.column4;

-- name: cells_below_rows
-- All cells under a key as they are now.
SELECT v.column1, c.key, c.slot, c.value, c.since FROM (VALUES :rows) AS v CROSS JOIN __agents_custom_state AS c
  ON c.session_id = v.column2 AND c.key = v.column3;

-- name: all_cells_rows
-- All cells of a session as they are now.
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

-- name: unstage
-- Drop what was staged for the step.
DELETE FROM __agents_staging WHERE session_id = ? AND step_id = ?;

-- name: unstage_rows
-- The same.
DELETE FROM __agents_staging WHERE (session_id, step_id) IN (VALUES :rows);

-- name: count
-- Store the counters.
UPDATE __agents_states SET updated_at = ?, version = ?, message_count = ?, checkpoint_count = ?, step_count = ?,
  resume_count = ?
WHERE rowid = ?;

-- name: count_rows
-- The same.
UPDATE __agents_states SET updated_at = column1, version = column2, message_count = column3,
  checkpoint_count = column4, step_count = column5, resume_count = column6
FROM (VALUES :rows) WHERE __agents_states.rowid = column7;

-- name: describe
-- Store the other fields that no index holds.
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
-- Store the fields that indexes hold.
UPDATE __agents_states SET agent_type = ?, stream_id = ?, parent_session_id = ?, root_session_id = ?, status = ?,
  expires_at = ?, user_id = ?, tags = ?, metadata = ?
WHERE rowid = ?;

-- name: relabel_rows
-- The same.
UPDATE __agents_states SET agent_type = column1, stream_id = column2, parent_session_id = column3,
  root_session_id = column4, status = column5, expires_at = column6, user_id = column7, tags = column8,
  metadata = column9
FROM (VALUES :rows) WHERE __agents_states.rowid = column10;

-- name: change_cell
-- Give a cell another text.
UPDATE __agents_custom_state SET value = ?, since = ? WHERE session_id = ? AND key = ? AND slot = ?;

-- name: change_cell_rows
-- The same.
UPDATE __agents_custom_state SET value = column1, since = column2 FROM (VALUES :rows) AS v
WHERE __agents_custom_state.session_id = column3 AND __agents_custom_state.key = column4
  AND __agents_custom_state.slot = column5;

-- name: drop_cell_rows
-- Remove cells.
DELETE FROM __agents_custom_state WHERE (session_id, key, slot) IN (VALUES :rows);

-- name: insert_cell_rows
-- Begin cells.
INSERT INTO __agents_custom_state (session_id, key, slot, value, since) VALUES :rows;

-- name: insert_past_rows
-- Keep what cells held.
INSERT INTO __agents_past (session_id, number, key, slot, value, since) VALUES :rows;

-- name: insert_message_rows
-- Append messages.
INSERT INTO __agents_messages (session_id, sequence, message, created_at) VALUES :rows;

-- name: insert_checkpoint_rows
-- Record the commits.
INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence,
  message_count, status, version, state, created_at, overwritten) VALUES :rows;
