-- What differs on Postgres from queries.sql: JSON has other functions, IS NOT is IS DISTINCT FROM, and indexes hold
-- a short text for a long name. Commits are not here: they are one function, `postgres/commit.sql`. Of the writes in
-- queries.sql, only those that are overridden here are used.
-- OFFSET 0 keeps the planner from turning "look each of these up" into "read everything and compare".

-- name: touch_for_ref
-- Update the session's time if it has such a ref.
UPDATE __agents_states SET updated_at = ?3 WHERE session_id = ?1 AND EXISTS (
  SELECT 1 FROM __agents_sub_session_refs WHERE session_id = ?1 AND sub_session_id = ?2);

-- name: swap_status
-- Set the status if it is one of ?3 and version, incarnation and owner epoch are ?4, ?9 and ?10 (NULL: any).
UPDATE __agents_states SET status = ?2, version = version + 1, updated_at = ?5,
  interrupt_context = COALESCE(?6, interrupt_context), error = COALESCE(?7, error),
  failure_reason = COALESCE(?8, failure_reason), due_at = ?11
WHERE session_id = ?1 AND status = ANY (ARRAY(SELECT json_array_elements_text(?3::json)))
  AND (CAST(?4 AS BIGINT) IS NULL OR version = CAST(?4 AS BIGINT))
  AND (CAST(?9 AS TEXT) IS NULL OR incarnation = CAST(?9 AS TEXT))
  AND (CAST(?10 AS BIGINT) IS NULL OR owner_epoch = CAST(?10 AS BIGINT))
RETURNING version;

-- name: guard_session
-- Undo the batch unless the session exists and has this incarnation (?2), version (?3) and owner epoch (?4), and an epoch
-- below the new one (?5). NULL: any. An earlier statement has locked the row.
INSERT INTO __agents_guard (reason)
SELECT CASE WHEN s.session_id IS NULL OR s.incarnation <> CAST(?2 AS TEXT) THEN 'missing'
  WHEN s.version <> CAST(?3 AS BIGINT) THEN 'version' ELSE 'epoch' END
FROM (SELECT 1 AS one) AS o LEFT JOIN __agents_states AS s ON s.session_id = ?1
WHERE s.session_id IS NULL OR s.incarnation <> CAST(?2 AS TEXT) OR s.version <> CAST(?3 AS BIGINT)
  OR s.owner_epoch <> CAST(?4 AS BIGINT) OR s.owner_epoch >= CAST(?5 AS BIGINT);

-- name: read_cells
-- The texts of those of these cells (?2: [[key, slot], ...]) that exist.
SELECT f.key, f.slot, f.value FROM json_array_elements(?2::json) AS g (cell), LATERAL (
  SELECT c.key, c.slot, c.value FROM __agents_custom_state AS c WHERE c.session_id = ?1
  AND c.key = (g.cell->>0) AND c.slot = (g.cell->>1) OFFSET 0) AS f;

-- name: read_session_as_one
-- A session with its flag, and all cells as one text with chr(31) and chr(30) in between, the items of a list in order.
-- chr(29) marks the short text of a long name.
SELECT s.session_id, s.agent_type, s.stream_id, s.parent_session_id, s.root_session_id, s.step_count, s.status,
  s.output, s.error, s.failure_reason, s.pending_client_tool_calls, s.completed_client_tool_calls,
  s.suspension_context, s.interrupt_context, s.expires_at, s.user_id, s.tags, s.metadata, s.version, s.resume_count,
  s.created_at, s.updated_at, s.message_count, s.checkpoint_count, f.timestamp, f.reason, f.run_id, f.abort,
  s.incarnation, s.owner_epoch, s.forked_from,
  (SELECT string_agg(CASE WHEN strpos(c.key, chr(29)) = 0 THEN c.key ELSE (
      SELECT name FROM __agents_long_names WHERE session_id = ?1 AND place = c.key) END || chr(31) ||
    CASE WHEN strpos(c.slot, chr(29)) = 0 THEN c.slot ELSE (
      SELECT name FROM __agents_long_names WHERE session_id = ?1 AND place = c.slot) END || chr(31) || c.value, chr(30))
    FROM (SELECT key, slot, value FROM __agents_custom_state WHERE session_id = ?1 ORDER BY key, slot) AS c)
FROM __agents_states AS s LEFT JOIN __agents_interrupt_flags AS f ON f.session_id = s.session_id
WHERE s.session_id = ?1;

-- name: read_custom_state_at
-- All cells as of a checkpoint (?2, made at ?3; NULL: the last one), the items of a list in order.
WITH at (number) AS (SELECT CASE WHEN CAST(?2 AS TEXT) IS NULL
  THEN (SELECT MAX(number) FROM __agents_checkpoints WHERE session_id = ?1)
  ELSE (SELECT number FROM __agents_checkpoints WHERE created_at = ?3 AND session_id = ?1 AND checkpoint_id = ?2) END)
SELECT CASE WHEN strpos(f.key, chr(29)) = 0 THEN f.key ELSE (
    SELECT name FROM __agents_long_names WHERE session_id = ?1 AND place = f.key) END,
  CASE WHEN strpos(f.slot, chr(29)) = 0 THEN f.slot ELSE (
    SELECT name FROM __agents_long_names WHERE session_id = ?1 AND place = f.slot) END, f.value
FROM (SELECT c.key, c.slot, c.value FROM at, __agents_custom_state AS c
  WHERE c.session_id = ?1 AND c.since < at.number
  UNION ALL SELECT h.key, h.slot, h.value FROM at, __agents_history AS h
  WHERE h.session_id = ?1 AND h.number > at.number AND h.since < at.number) AS f
ORDER BY f.key, f.slot;

-- name: read_messages_as_one
-- At most ?3 messages from ?2 on (below 0: so many before the end) as one text with chr(30) in between, and how many
-- there are.
SELECT s.message_count, (SELECT string_agg(p.message, chr(30)) FROM (
  SELECT m.message FROM __agents_messages AS m WHERE m.session_id = ?1 AND m.sequence >=
    CASE WHEN CAST(?2 AS BIGINT) < 0 THEN s.message_count + CAST(?2 AS BIGINT) ELSE CAST(?2 AS BIGINT) END
  ORDER BY m.sequence LIMIT CAST(?3 AS BIGINT)) AS p)
FROM __agents_states AS s WHERE s.session_id = ?1;

-- name: label_place
-- The short text of a label in the table of labels.
__agents_index_text(?);

-- name: update_run
-- Change the given fields of a run, if its status is one of ?2 and incarnation and owner epoch of its session are ?12 and ?13
-- (NULL: any). The session is locked, so that a claim that is about to commit is seen.
UPDATE __agents_runs SET status = COALESCE(?3, status), step_count = COALESCE(?4, step_count),
  error = COALESCE(?5, error), output = COALESCE(?6, output), completed_at = COALESCE(?7, completed_at),
  lease_until = COALESCE(?8, lease_until), start_sequence = COALESCE(?9, start_sequence),
  metadata = COALESCE(?10, metadata), details = COALESCE(?11, details)
WHERE run_id = ?1 AND status = ANY (ARRAY(SELECT json_array_elements_text(?2::json)))
  AND (CAST(?12 AS TEXT) IS NULL OR EXISTS (SELECT 1 FROM __agents_states AS s
    WHERE s.session_id = __agents_runs.session_id AND s.incarnation = CAST(?12 AS TEXT)
    AND (CAST(?13 AS BIGINT) IS NULL OR s.owner_epoch = CAST(?13 AS BIGINT)) FOR SHARE))
RETURNING 1;

-- name: delete_session_tree
-- Remove every trace of a session and its descendants; return how many sessions. With incarnation and owner epoch (?2,
-- ?3; NULL: any): only if the session has them.
SELECT __agents_delete_tree(?1, ?2, ?3);

-- name: update_ref
-- Change those fields of a ref that ?3 names (",status,name,").
UPDATE __agents_sub_session_refs SET
  agent_type = CASE WHEN ?3 LIKE '%,agent_type,%' THEN ?4 ELSE agent_type END,
  parent_tool_call_id = CASE WHEN ?3 LIKE '%,parent_tool_call_id,%' THEN ?5 ELSE parent_tool_call_id END,
  status = CASE WHEN ?3 LIKE '%,status,%' THEN ?6 ELSE status END,
  mode = CASE WHEN ?3 LIKE '%,mode,%' THEN ?7 ELSE mode END,
  name = CASE WHEN ?3 LIKE '%,name,%' THEN ?8 ELSE name END,
  remote_json = CASE WHEN ?3 LIKE '%,remote,%' THEN ?9 ELSE remote_json END,
  started_at = CASE WHEN ?3 LIKE '%,started_at,%' THEN CAST(?10 AS BIGINT) ELSE started_at END,
  completed_at = CASE WHEN ?3 LIKE '%,completed_at,%' THEN CAST(?11 AS BIGINT) ELSE completed_at END
WHERE session_id = ?1 AND sub_session_id = ?2;

-- name: one_of
-- What follows a column that must hold one of the texts in a JSON array.
= ANY (ARRAY(SELECT json_array_elements_text(?::json)));
