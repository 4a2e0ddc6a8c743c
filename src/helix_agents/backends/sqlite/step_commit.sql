-- The statements of the commit that ends a step, for a writer that holds the database and looks before it writes.
-- Everything is found by one index entry, and values are bound where queries.sql has to compute them in place.

-- name: session
-- Where the session's row is, what it counts, the fields that indexes hold; a row for each call staged for step ?2.
SELECT t.tool_call_id, t.token, s.rowid, s.version, s.message_count, s.checkpoint_count, s.agent_type, s.stream_id,
  s.parent_session_id, s.root_session_id, s.status, s.expires_at, s.user_id, s.tags, s.metadata
FROM __agents_states AS s LEFT JOIN __agents_staging AS t ON t.session_id = ?1 AND t.step_id = ?2
WHERE s.session_id = ?1;

-- name: unstage
-- Drop what was staged for the step.
DELETE FROM __agents_staging WHERE session_id = ?1 AND step_id = ?2;

-- name: update
-- Store the counters and the fields that no index holds.
UPDATE __agents_states SET updated_at = ?2, version = ?3, message_count = ?4, checkpoint_count = ?5, step_count = ?6,
  resume_count = ?7, output = ?8, error = ?9, failure_reason = ?10, pending_client_tool_calls = ?11,
  completed_client_tool_calls = ?12, suspension_context = ?13, interrupt_context = ?14
WHERE rowid = ?1;

-- name: relabel
-- Store the fields that indexes hold.
UPDATE __agents_states SET agent_type = ?2, stream_id = ?3, parent_session_id = ?4, root_session_id = ?5, status = ?6,
  expires_at = ?7, user_id = ?8, tags = ?9, metadata = ?10
WHERE rowid = ?1;

-- name: insert_message
-- Append a message.
INSERT INTO __agents_messages (session_id, sequence, message, created_at) VALUES (?1, ?2, ?3, ?4);

-- name: cell
-- A cell as it is now.
SELECT rowid, value, born FROM __agents_custom_state WHERE session_id = ?1 AND key = ?2 AND slot = ?3 AND died IS NULL;

-- name: tail
-- The last item of the list under a key; the key's own cell if there are no items ('' sorts before '#').
SELECT slot, value FROM __agents_custom_state
WHERE session_id = ?1 AND key = ?2 AND died IS NULL AND slot < '$' ORDER BY slot DESC LIMIT 1;

-- name: insert_cell
-- Begin a cell, or keep what one held.
INSERT INTO __agents_custom_state (session_id, key, slot, value, born, died) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: change_cell
-- Give a cell another text.
UPDATE __agents_custom_state SET value = ?2, born = ?3 WHERE rowid = ?1;

-- name: insert_checkpoint
-- Record the commit.
INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence,
  message_count, status, version, state, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11);
