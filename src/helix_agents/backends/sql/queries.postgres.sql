-- What Postgres says differently from queries.sql. Three reasons:
-- JSON has other functions; IS NOT is IS DISTINCT FROM; and many sessions write at once, so that the first statement of
-- a batch takes the row of its session, and whatever a later statement looks at stands still.
-- OFFSET 0 keeps the planner from turning "look each of these up" into "read everything and compare".

-- name: guard_session
-- Take the session's row; undo the batch unless it exists and has the expected version (?2, NULL: any).
INSERT INTO __agents_guard (reason)
SELECT CASE WHEN s.version IS NULL THEN 'missing' ELSE 'version' END
FROM (SELECT 1) AS o LEFT JOIN (
  SELECT version FROM __agents_states WHERE session_id = ?1 FOR NO KEY UPDATE) AS s ON true
WHERE s.version IS NULL OR s.version <> CAST(?2 AS BIGINT);

-- name: guard_staged
-- Undo the batch unless exactly these calls (?3: [[tool_call_id, token], ...]) are staged for the step.
INSERT INTO __agents_guard (reason)
SELECT 'staged' WHERE json_array_length(?3::json) <>
  (SELECT COUNT(*) FROM __agents_staging WHERE session_id = ?1 AND step_id = ?2)
OR EXISTS (SELECT 1 FROM json_array_elements(?3::json) AS g (call) WHERE NOT EXISTS (
  SELECT 1 FROM __agents_staging AS t WHERE t.session_id = ?1 AND t.step_id = ?2
  AND t.tool_call_id = (g.call->>0) AND t.token = (g.call->>1)));

-- name: guard_cells
-- Undo the batch unless these cells hold these texts (?2: [[key, slot, text or null], ...]).
INSERT INTO __agents_guard (reason)
SELECT 'cells' WHERE EXISTS (SELECT 1 FROM json_array_elements(?2::json) AS g (cell)
  WHERE (g.cell->>2) IS DISTINCT FROM (
    SELECT c.value FROM __agents_custom_state AS c WHERE c.session_id = ?1
    AND c.key = (g.cell->>0) AND c.slot = (g.cell->>1)));

-- name: relabel_session
-- Store the fields that indexes hold, but only if one differs.
UPDATE __agents_states SET agent_type = ?2, stream_id = ?3, parent_session_id = ?4, root_session_id = ?5, status = ?6,
  expires_at = ?7, user_id = ?8, tags = ?9, metadata = ?10
WHERE session_id = ?1 AND (agent_type <> ?2 OR stream_id <> ?3 OR parent_session_id IS DISTINCT FROM ?4
  OR root_session_id IS DISTINCT FROM ?5 OR status <> ?6 OR expires_at IS DISTINCT FROM ?7
  OR user_id IS DISTINCT FROM ?8 OR tags <> ?9 OR metadata <> ?10);

-- name: swap_status
-- Set the status if it is one of ?3 and the version is ?4 (NULL: any).
UPDATE __agents_states SET status = ?2, version = version + 1, updated_at = ?5,
  interrupt_context = COALESCE(?6, interrupt_context), error = COALESCE(?7, error),
  failure_reason = COALESCE(?8, failure_reason)
WHERE session_id = ?1 AND status = ANY (ARRAY(SELECT json_array_elements_text(?3::json)))
  AND (CAST(?4 AS BIGINT) IS NULL OR version = CAST(?4 AS BIGINT))
RETURNING version;

-- name: insert_messages
-- Append messages (?2: [text, ...]); the session row already counts them, ?3 is how many from the first of these on.
INSERT INTO __agents_messages (session_id, sequence, message, created_at)
SELECT ?1, s.message_count - CAST(?3 AS BIGINT) + j.place - 1, j.value, CAST(?4 AS BIGINT)
FROM json_array_elements_text(?2::json) WITH ORDINALITY AS j (value, place), __agents_states AS s
WHERE s.session_id = ?1;

-- name: keep_keys
-- Copy to the past what a checkpoint has seen under the keys ?2 and what is not as ?3 ([[key, slot, text], ...]) says.
INSERT INTO __agents_past (session_id, number, key, slot, value, since)
SELECT ?1, s.checkpoint_count - CAST(?4 AS BIGINT) + 1, c.key, c.slot, c.value, c.since
FROM __agents_states AS s, __agents_custom_state AS c
WHERE s.session_id = ?1 AND c.session_id = ?1 AND c.key = ANY (ARRAY(SELECT json_array_elements_text(?2::json)))
  AND c.since < s.checkpoint_count - CAST(?4 AS BIGINT) AND (c.key, c.slot, c.value) NOT IN (
    SELECT g.cell->>0, g.cell->>1, g.cell->>2 FROM json_array_elements(?3::json) AS g (cell));

-- name: drop_keys
-- Remove what is under the keys ?2 and not as ?3 ([[key, slot, text], ...]) says.
DELETE FROM __agents_custom_state
WHERE session_id = ?1 AND key = ANY (ARRAY(SELECT json_array_elements_text(?2::json)))
  AND (key, slot, value) NOT IN (
    SELECT g.cell->>0, g.cell->>1, g.cell->>2 FROM json_array_elements(?3::json) AS g (cell));

-- name: keep_all
-- Copy to the past what a checkpoint has seen and what is not as ?2 ([[key, slot, text], ...]) says.
INSERT INTO __agents_past (session_id, number, key, slot, value, since)
SELECT ?1, s.checkpoint_count - CAST(?3 AS BIGINT) + 1, c.key, c.slot, c.value, c.since
FROM __agents_states AS s, __agents_custom_state AS c
WHERE s.session_id = ?1 AND c.session_id = ?1 AND c.since < s.checkpoint_count - CAST(?3 AS BIGINT)
  AND (c.key, c.slot, c.value) NOT IN (
    SELECT g.cell->>0, g.cell->>1, g.cell->>2 FROM json_array_elements(?2::json) AS g (cell));

-- name: drop_all
-- Remove what is not as ?2 ([[key, slot, text], ...]) says.
DELETE FROM __agents_custom_state WHERE session_id = ?1 AND (key, slot, value) NOT IN (
    SELECT g.cell->>0, g.cell->>1, g.cell->>2 FROM json_array_elements(?2::json) AS g (cell));

-- name: keep_cells
-- Copy to the past those of these cells (?2: [[key, slot, new text or null], ...]) that a checkpoint has seen and that
-- are about to change.
INSERT INTO __agents_past (session_id, number, key, slot, value, since)
SELECT ?1, s.checkpoint_count - CAST(?3 AS BIGINT) + 1, f.key, f.slot, f.value, f.since
FROM __agents_states AS s, json_array_elements(?2::json) AS g (cell), LATERAL (
  SELECT c.key, c.slot, c.value, c.since FROM __agents_custom_state AS c
  WHERE c.session_id = ?1 AND c.key = (g.cell->>0) AND c.slot = (g.cell->>1) OFFSET 0) AS f
WHERE s.session_id = ?1 AND f.value IS DISTINCT FROM (g.cell->>2)
  AND f.since < s.checkpoint_count - CAST(?3 AS BIGINT);

-- name: drop_cells
-- Remove these cells (?2: [[key, slot, null], ...]) from the present.
DELETE FROM __agents_custom_state WHERE ctid = ANY (ARRAY(
  SELECT f.place FROM json_array_elements(?2::json) AS g (cell), LATERAL (
    SELECT c.ctid AS place FROM __agents_custom_state AS c WHERE c.session_id = ?1
    AND c.key = (g.cell->>0) AND c.slot = (g.cell->>1) OFFSET 0) AS f));

-- name: put_cells
-- Make these cells (?2: [[key, slot, text], ...]) hold these texts from now on.
INSERT INTO __agents_custom_state AS c (session_id, key, slot, value, since)
SELECT ?1, g.cell->>0, g.cell->>1, g.cell->>2, s.checkpoint_count - CAST(?3 AS BIGINT)
FROM json_array_elements(?2::json) AS g (cell), __agents_states AS s
WHERE s.session_id = ?1
ON CONFLICT (session_id, key, slot) DO UPDATE SET value = excluded.value, since = excluded.since
WHERE c.value <> excluded.value;

-- name: begin_cells
-- Begin those of these cells (?2: [[key, slot, text], ...]) that are not there; the others hold their texts already and
-- are not even locked.
INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
SELECT ?1, g.cell->>0, g.cell->>1, g.cell->>2, s.checkpoint_count - CAST(?3 AS BIGINT)
FROM json_array_elements(?2::json) AS g (cell), __agents_states AS s
WHERE s.session_id = ?1
ON CONFLICT (session_id, key, slot) DO NOTHING;

-- name: append_items
-- Begin further items (?3: [text, ...]) of the list under key ?2.
INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
SELECT ?1, ?2, '#' || lpad((e.position + j.place - 1)::text, 10, '0'), j.value, s.checkpoint_count - CAST(?4 AS BIGINT)
FROM json_array_elements_text(?3::json) WITH ORDINALITY AS j (value, place), __agents_states AS s, (SELECT COALESCE((
    SELECT CAST(substr(slot, 2) AS BIGINT) + 1 FROM __agents_custom_state
    WHERE session_id = ?1 AND key = ?2 AND slot >= '#' AND slot < '$'
    ORDER BY slot DESC LIMIT 1), 0) AS position) AS e
WHERE s.session_id = ?1;

-- name: read_cells
-- The texts of these cells (?2: [[key, slot], ...]) that are there.
SELECT f.key, f.slot, f.value FROM json_array_elements(?2::json) AS g (cell), LATERAL (
  SELECT c.key, c.slot, c.value FROM __agents_custom_state AS c WHERE c.session_id = ?1
  AND c.key = (g.cell->>0) AND c.slot = (g.cell->>1) OFFSET 0) AS f;

-- name: read_custom_state_at
-- All cells as of a checkpoint (?2, made at ?3; NULL: the last one), the items of a list in order.
WITH at (number) AS (SELECT CASE WHEN CAST(?2 AS TEXT) IS NULL
  THEN (SELECT MAX(number) FROM __agents_checkpoints WHERE session_id = ?1)
  ELSE (SELECT number FROM __agents_checkpoints WHERE created_at = ?3 AND session_id = ?1 AND checkpoint_id = ?2) END)
SELECT c.key, c.slot, c.value FROM at, __agents_custom_state AS c WHERE c.session_id = ?1 AND c.since < at.number
UNION ALL SELECT h.key, h.slot, h.value FROM at, __agents_history AS h
WHERE h.session_id = ?1 AND h.number > at.number AND h.since < at.number
ORDER BY 1, 2;

-- name: stage
-- Keep what one tool call wrote; the same call again replaces. The session's row is taken: nobody stages beside us.
WITH before AS (DELETE FROM __agents_staging WHERE session_id = ?1 AND step_id = ?2 AND tool_call_id = ?3)
INSERT INTO __agents_staging (session_id, step_id, tool_call_id, position, writes, result, token, staged_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: label_place
-- What stands in the table of labels for the label asked for.
__agents_index_text(?);

-- name: update_run
-- Change what is given of a run, if its status is one of ?2.
UPDATE __agents_runs SET status = COALESCE(?3, status), step_count = COALESCE(?4, step_count),
  error = COALESCE(?5, error), output = COALESCE(?6, output), completed_at = COALESCE(?7, completed_at),
  lease_until = COALESCE(?8, lease_until)
WHERE run_id = ?1 AND status = ANY (ARRAY(SELECT json_array_elements_text(?2::json)))
RETURNING 1;

-- name: insert_session
-- Create the session row; an id that is taken violates the primary key. The parent's row is held, so that whoever
-- deletes a tree finds the new leaf or is done before.
INSERT INTO __agents_states (session_id, agent_type, stream_id, parent_session_id, root_session_id, status,
  expires_at, user_id, tags, metadata, step_count, resume_count, output, error, failure_reason,
  pending_client_tool_calls, completed_client_tool_calls, suspension_context, interrupt_context, created_at, updated_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, CAST(?7 AS BIGINT), ?8, ?9, ?10, CAST(?11 AS BIGINT), CAST(?12 AS BIGINT), ?13, ?14, ?15,
  ?16, ?17, ?18, ?19, CAST(?20 AS BIGINT), CAST(?20 AS BIGINT)
FROM (SELECT 1) AS o LEFT JOIN (
  SELECT 1 AS held FROM __agents_states WHERE session_id = ?4 FOR KEY SHARE) AS p ON true
WHERE p.held IS NULL OR p.held = 1
RETURNING version, message_count, step_count, resume_count;

-- name: delete_session_tree
-- Remove every trace of a session and of all below it; how many sessions that were.
SELECT __agents_delete_tree(?1);

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
