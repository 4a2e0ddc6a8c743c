-- The statements of commits that store a session, for a writer that holds the database and looks before it writes.
-- Everything is found by one index entry, and values are bound where queries.sql has to compute them in place.
-- A name with _rows does the same for any number of rows at once: :rows stands for as many as there are.

-- name: session
-- Where session ?2 is, what it counts, what is staged for its step ?3, whether it has no content but counters, the
-- fields that indexes hold. ?1 comes back.
SELECT ?1, s.rowid, s.version, s.message_count, s.checkpoint_count,
  (SELECT group_concat(tool_call_id || char(31) || token, char(30)) FROM __agents_staging AS t
   WHERE t.session_id = ?2 AND t.step_id = ?3),
  COALESCE(s.output, s.error, s.failure_reason, s.pending_client_tool_calls, s.completed_client_tool_calls,
    s.suspension_context, s.interrupt_context) IS NULL,
  s.agent_type, s.stream_id, s.parent_session_id, s.root_session_id, s.status, s.expires_at, s.user_id, s.tags,
  s.metadata
FROM __agents_states AS s WHERE s.session_id = ?2;

-- name: session_rows
-- The same.
SELECT v.column1, s.rowid, s.version, s.message_count, s.checkpoint_count,
  (SELECT group_concat(tool_call_id || char(31) || token, char(30)) FROM __agents_staging AS t
   WHERE t.session_id = v.column2 AND t.step_id = v.column3),
  COALESCE(s.output, s.error, s.failure_reason, s.pending_client_tool_calls, s.completed_client_tool_calls,
    s.suspension_context, s.interrupt_context) IS NULL,
  s.agent_type, s.stream_id, s.parent_session_id, s.root_session_id, s.status, s.expires_at, s.user_id, s.tags,
  s.metadata
FROM (VALUES :rows) AS v CROSS JOIN __agents_states AS s ON s.session_id = v.column2;

-- name: cell
-- A cell as it is now. ?1 comes back.
SELECT ?1, rowid, value, born FROM __agents_custom_state
WHERE session_id = ?2 AND key = ?3 AND slot = ?4 AND died IS NULL;

-- name: cell_rows
-- The same.
SELECT v.column1, c.rowid, c.value, c.born FROM (VALUES :rows) AS v CROSS JOIN __agents_custom_state AS c
  ON c.session_id = v.column2 AND c.key = v.column3 AND c.slot = v.column4 AND c.died IS NULL;

-- name: cells_below_rows
-- All cells under a key as they are now.
SELECT v.column1, c.key, c.slot, c.rowid, c.value, c.born FROM (VALUES :rows) AS v CROSS JOIN __agents_custom_state AS c
  ON c.session_id = v.column2 AND c.key = v.column3 AND c.died IS NULL;

-- name: all_cells_rows
-- All cells of a session as they are now.
SELECT v.column1, c.key, c.slot, c.rowid, c.value, c.born FROM (VALUES :rows) AS v CROSS JOIN __agents_custom_state AS c
  ON c.session_id = v.column2 AND c.died IS NULL;

-- name: tail
-- The last item of the list under a key; the key's own cell if there are no items ('' sorts before '#').
SELECT ?1, slot, value FROM __agents_custom_state
WHERE session_id = ?2 AND key = ?3 AND died IS NULL AND slot < '$' ORDER BY slot DESC LIMIT 1;

-- name: tail_rows
-- The same.
SELECT v.column1, c.slot, c.value FROM (VALUES :rows) AS v CROSS JOIN __agents_custom_state AS c
  ON c.rowid = (SELECT t.rowid FROM __agents_custom_state AS t
    WHERE t.session_id = v.column2 AND t.key = v.column3 AND t.died IS NULL AND t.slot < '$'
    ORDER BY t.slot DESC LIMIT 1);

-- name: unstage
-- Drop what was staged for the step.
DELETE FROM __agents_staging WHERE session_id = ?1 AND step_id = ?2;

-- name: unstage_rows
-- The same.
DELETE FROM __agents_staging WHERE (session_id, step_id) IN (VALUES :rows);

-- name: count
-- Store the counters.
UPDATE __agents_states SET updated_at = ?2, version = ?3, message_count = ?4, checkpoint_count = ?5, step_count = ?6,
  resume_count = ?7
WHERE rowid = ?1;

-- name: count_rows
-- The same.
UPDATE __agents_states SET updated_at = column2, version = column3, message_count = column4,
  checkpoint_count = column5, step_count = column6, resume_count = column7
FROM (VALUES :rows) WHERE __agents_states.rowid = column1;

-- name: describe
-- Store the other fields that no index holds.
UPDATE __agents_states SET output = ?2, error = ?3, failure_reason = ?4, pending_client_tool_calls = ?5,
  completed_client_tool_calls = ?6, suspension_context = ?7, interrupt_context = ?8
WHERE rowid = ?1;

-- name: describe_rows
-- The same.
UPDATE __agents_states SET output = column2, error = column3, failure_reason = column4,
  pending_client_tool_calls = column5, completed_client_tool_calls = column6, suspension_context = column7,
  interrupt_context = column8
FROM (VALUES :rows) WHERE __agents_states.rowid = column1;

-- name: relabel
-- Store the fields that indexes hold.
UPDATE __agents_states SET agent_type = ?2, stream_id = ?3, parent_session_id = ?4, root_session_id = ?5, status = ?6,
  expires_at = ?7, user_id = ?8, tags = ?9, metadata = ?10
WHERE rowid = ?1;

-- name: change_cell
-- Give a cell another text.
UPDATE __agents_custom_state SET value = ?2, born = ?3 WHERE rowid = ?1;

-- name: change_cell_rows
-- The same.
UPDATE __agents_custom_state SET value = column2, born = column3
FROM (VALUES :rows) WHERE __agents_custom_state.rowid = column1;

-- name: drop_cell_rows
-- Remove cells.
DELETE FROM __agents_custom_state WHERE rowid IN (VALUES :rows);

-- name: insert_cell_rows
-- Begin cells, or keep what they held in rows of their own.
INSERT INTO __agents_custom_state (session_id, key, slot, value, born, died) VALUES :rows;

-- name: insert_message_rows
-- Append messages.
INSERT INTO __agents_messages (session_id, sequence, message, created_at) VALUES :rows;

-- name: insert_checkpoint_rows
-- Record the commits.
INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence,
  message_count, status, version, state, created_at, overwritten) VALUES :rows;
