-- Every statement of the state store. Parameters are ?1, ?2, ...; lists travel as one JSON text.
-- "The current number" is how many checkpoints a session had when the batch started: statements that run after the
-- session row was updated by a commit with a checkpoint subtract that one again.

-- name: guard_session
-- Undo the batch unless the session exists and has this incarnation (?2), version (?3) and owner epoch (?4), and an epoch
-- below the new one (?5). NULL: any.
INSERT INTO __agents_guard (reason)
SELECT CASE WHEN s.session_id IS NULL OR s.incarnation <> CAST(?2 AS TEXT) THEN 'missing'
  WHEN s.version <> CAST(?3 AS BIGINT) THEN 'version' ELSE 'epoch' END
FROM (SELECT 1 AS one) AS o LEFT JOIN __agents_states AS s ON s.session_id = ?1
WHERE s.session_id IS NULL OR s.incarnation <> CAST(?2 AS TEXT) OR s.version <> CAST(?3 AS BIGINT)
  OR s.owner_epoch <> CAST(?4 AS BIGINT) OR s.owner_epoch >= CAST(?5 AS BIGINT);

-- name: guard_identity
-- Undo the batch unless the session has this incarnation (?2), time of creation (?3; NULL: any), agent and user.
INSERT INTO __agents_guard (reason)
SELECT 'identity' FROM __agents_states WHERE session_id = ?1 AND (
  incarnation <> ?2 OR created_at <> ?3 OR agent_type <> ?4 OR user_id IS NOT ?5);

-- name: guard_status
-- Undo the batch unless the session's status is one of ?2.
INSERT INTO __agents_guard (reason)
SELECT 'version' FROM __agents_states WHERE session_id = ?1 AND status NOT IN (SELECT value FROM json_each(?2));

-- name: guard_staged
-- Undo the batch unless exactly these calls (?3: [[kind, tool_call_id, token], ...]) are staged for the step.
INSERT INTO __agents_guard (reason)
SELECT 'staged' WHERE json_array_length(?3) <>
  (SELECT COUNT(*) FROM __agents_staging WHERE session_id = ?1 AND step_id = ?2)
OR EXISTS (SELECT 1 FROM json_each(?3) AS g WHERE NOT EXISTS (
  SELECT 1 FROM __agents_staging AS t WHERE t.session_id = ?1 AND t.step_id = ?2
  AND t.kind = json_extract(g.value, '$[0]') AND t.tool_call_id = json_extract(g.value, '$[1]')
  AND t.token = json_extract(g.value, '$[2]')));

-- name: guard_cells
-- Undo the batch unless these cells hold these texts (?2: [[key, slot, text or null], ...]).
INSERT INTO __agents_guard (reason)
SELECT 'cells' WHERE EXISTS (SELECT 1 FROM json_each(?2) AS g
  WHERE json_extract(g.value, '$[2]') IS NOT (
    SELECT c.value FROM __agents_custom_state AS c WHERE c.session_id = ?1
    AND c.key = json_extract(g.value, '$[0]') AND c.slot = json_extract(g.value, '$[1]')));

-- name: guard_lease
-- Undo the batch unless the run has this status and this lease.
INSERT INTO __agents_guard (reason)
SELECT 'lease' WHERE NOT EXISTS (SELECT 1 FROM __agents_runs
  WHERE session_id = ?1 AND run_id = ?2 AND status = ?3 AND COALESCE(lease_until, -1) = COALESCE(?4, -1));

-- name: guard_checkpoint
-- Undo the batch unless the session still has the checkpoint of that number.
INSERT INTO __agents_guard (reason)
SELECT 'checkpoint' WHERE NOT EXISTS (
  SELECT 1 FROM __agents_checkpoints WHERE session_id = ?1 AND number = ?2);

-- name: guard_fork
-- Undo the batch unless the session still has the checkpoint of that number, and so many messages.
INSERT INTO __agents_guard (reason)
SELECT 'checkpoint' WHERE NOT EXISTS (SELECT 1 FROM __agents_states AS s, __agents_checkpoints AS p
  WHERE s.session_id = ?1 AND s.message_count >= ?3 AND p.session_id = ?1 AND p.number = ?2);

-- name: insert_session
-- Create the session row; an id that is taken violates the primary key.
INSERT INTO __agents_states (session_id, incarnation, agent_type, user_id, stream_id, parent_session_id, root_session_id,
  status, expires_at, due_at, tags, metadata, step_count, resume_count, output, error, failure_reason,
  pending_client_tool_calls, completed_client_tool_calls, suspension_context, interrupt_context, owner_epoch,
  forked_from, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24,
  ?24)
RETURNING version, message_count, step_count, resume_count;

-- name: update_session
-- Store the fields without an index; update version, message count and checkpoint count.
UPDATE __agents_states SET updated_at = ?2, version = version + ?3, message_count = message_count + ?4,
  checkpoint_count = checkpoint_count + ?5, step_count = ?6, resume_count = ?7, output = ?8, error = ?9,
  failure_reason = ?10, pending_client_tool_calls = ?11, completed_client_tool_calls = ?12,
  suspension_context = ?13, interrupt_context = ?14, owner_epoch = COALESCE(?15, owner_epoch)
WHERE session_id = ?1
RETURNING version, message_count, step_count, resume_count;

-- name: relabel_session
-- Store the indexed fields, but only if one differs: each rewritten index entry is a written page.
UPDATE __agents_states SET stream_id = ?2, parent_session_id = ?3, root_session_id = ?4, status = ?5, expires_at = ?6,
  due_at = ?7, tags = ?8, metadata = ?9
WHERE session_id = ?1 AND (stream_id <> ?2 OR parent_session_id IS NOT ?3 OR root_session_id IS NOT ?4
  OR status <> ?5 OR expires_at IS NOT ?6 OR due_at IS NOT ?7 OR tags <> ?8 OR metadata <> ?9);

-- name: touch_session
-- Update the session's counters and its time.
UPDATE __agents_states SET updated_at = ?2, version = version + ?3, message_count = message_count + ?4,
  step_count = step_count + ?5, resume_count = resume_count + ?6, owner_epoch = COALESCE(?7, owner_epoch)
WHERE session_id = ?1
RETURNING version, message_count, step_count, resume_count;

-- name: touch_for_ref
-- Update the session's time if it has such a ref.
UPDATE __agents_states SET updated_at = ?3 WHERE session_id = ?1 AND EXISTS (
  SELECT 1 FROM __agents_sub_session_refs WHERE session_id = ?1 AND sub_session_id = ?2);

-- name: set_status
-- Set the status, to one that does not suspend the session.
UPDATE __agents_states SET status = ?2, due_at = NULL WHERE session_id = ?1 AND status <> ?2;

-- name: swap_status
-- Set the status if it is one of ?3 and version, incarnation and owner epoch are ?4, ?9 and ?10 (NULL: any).
UPDATE __agents_states SET status = ?2, version = version + 1, updated_at = ?5,
  interrupt_context = COALESCE(?6, interrupt_context), error = COALESCE(?7, error),
  failure_reason = COALESCE(?8, failure_reason), due_at = ?11
WHERE session_id = ?1 AND status IN (SELECT value FROM json_each(?3))
  AND (CAST(?4 AS BIGINT) IS NULL OR version = CAST(?4 AS BIGINT))
  AND (CAST(?9 AS TEXT) IS NULL OR incarnation = CAST(?9 AS TEXT))
  AND (CAST(?10 AS BIGINT) IS NULL OR owner_epoch = CAST(?10 AS BIGINT))
RETURNING version;

-- name: next_due
-- The first moments after ?1 at which a lease ends or a session that waits is due.
SELECT (SELECT MIN(COALESCE(lease_until, 0)) FROM __agents_runs WHERE status = 'running' AND COALESCE(lease_until, 0) > ?1),
  (SELECT MIN(due_at) FROM __agents_states WHERE due_at > ?1);

-- name: read_status
-- Status, version and incarnation.
SELECT status, version, incarnation FROM __agents_states WHERE session_id = ?1;

-- name: insert_messages
-- Append messages (?2: [text, ...]); the session row already counts them, ?3 is how many from the first of these on.
INSERT INTO __agents_messages (session_id, sequence, message, created_at)
SELECT ?1, s.message_count - ?3 + j.key, j.value, ?4
FROM json_each(?2) AS j, __agents_states AS s WHERE s.session_id = ?1;

-- name: count_cut_messages
-- How many messages follow the first ?2.
SELECT CASE WHEN message_count > ?2 THEN message_count - ?2 ELSE 0 END FROM __agents_states WHERE session_id = ?1;

-- name: cut_messages
-- Drop the messages after the first ?2.
DELETE FROM __agents_messages WHERE session_id = ?1 AND sequence >= ?2;

-- name: recount_messages
-- Update the session row after messages were dropped.
UPDATE __agents_states SET message_count = ?2 WHERE session_id = ?1 AND message_count > ?2;

-- name: recount_checkpoints
-- Lower the count of checkpoints that counted more than ?2 messages. They are the last ones.
UPDATE __agents_checkpoints SET message_count = ?2 WHERE session_id = ?1 AND number > COALESCE((
  SELECT number FROM __agents_checkpoints WHERE session_id = ?1 AND message_count <= ?2
  ORDER BY number DESC LIMIT 1), 0);

-- name: read_messages
-- Messages from ?2 on, at most ?3 of them.
SELECT message FROM __agents_messages WHERE session_id = ?1 AND sequence >= ?2 ORDER BY sequence LIMIT ?3;

-- name: read_last_messages
-- At most ?3 messages, starting ?2 before the end.
SELECT m.message FROM __agents_messages AS m, __agents_states AS s
WHERE s.session_id = ?1 AND m.session_id = ?1 AND m.sequence >= s.message_count - ?2
ORDER BY m.sequence LIMIT ?3;

-- name: count_messages
-- How many messages there are.
SELECT message_count FROM __agents_states WHERE session_id = ?1;

-- name: keep_keys
-- Copy to the past the cells under the keys ?2 that a checkpoint needs and that differ from ?3 ([[key, slot, text], ...]).
INSERT INTO __agents_past (session_id, number, key, slot, value, since)
SELECT c.session_id, s.checkpoint_count - ?4 + 1, c.key, c.slot, c.value, c.since
FROM __agents_states AS s CROSS JOIN __agents_custom_state AS c
WHERE s.session_id = ?1 AND c.session_id = ?1 AND c.key IN (SELECT value FROM json_each(?2))
  AND c.since < s.checkpoint_count - ?4 AND (c.key, c.slot, c.value) NOT IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?3));

-- name: drop_keys
-- Remove the cells under the keys ?2 that differ from ?3 ([[key, slot, text], ...]).
DELETE FROM __agents_custom_state WHERE session_id = ?1 AND key IN (SELECT value FROM json_each(?2))
  AND (key, slot, value) NOT IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?3));

-- name: keep_all
-- Copy to the past the cells that a checkpoint needs and that differ from ?2 ([[key, slot, text], ...]).
INSERT INTO __agents_past (session_id, number, key, slot, value, since)
SELECT c.session_id, s.checkpoint_count - ?3 + 1, c.key, c.slot, c.value, c.since
FROM __agents_states AS s CROSS JOIN __agents_custom_state AS c
WHERE s.session_id = ?1 AND c.session_id = ?1 AND c.since < s.checkpoint_count - ?3
  AND (c.key, c.slot, c.value) NOT IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?2));

-- name: drop_all
-- Remove the cells that differ from ?2 ([[key, slot, text], ...]).
DELETE FROM __agents_custom_state WHERE session_id = ?1 AND (key, slot, value) NOT IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?2));

-- name: keep_cells
-- Copy to the past those of these cells (?2: [[key, slot, new text or null], ...]) that a checkpoint needs and that
-- are about to change.
INSERT INTO __agents_past (session_id, number, key, slot, value, since)
SELECT c.session_id, s.checkpoint_count - ?3 + 1, c.key, c.slot, c.value, c.since
FROM json_each(?2) AS j CROSS JOIN __agents_states AS s CROSS JOIN __agents_custom_state AS c
WHERE s.session_id = ?1 AND c.session_id = ?1 AND c.key = json_extract(j.value, '$[0]')
  AND c.slot = json_extract(j.value, '$[1]') AND c.value IS NOT json_extract(j.value, '$[2]')
  AND c.since < s.checkpoint_count - ?3;

-- name: drop_cells
-- Remove these cells (?2: [[key, slot, null], ...]).
DELETE FROM __agents_custom_state WHERE session_id = ?1 AND (key, slot) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?2));

-- name: put_cells
-- Set these cells (?2: [[key, slot, text], ...]).
INSERT INTO __agents_custom_state AS c (session_id, key, slot, value, since)
SELECT ?1, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), json_extract(j.value, '$[2]'),
  s.checkpoint_count - ?3
FROM json_each(?2) AS j, __agents_states AS s WHERE s.session_id = ?1
ON CONFLICT (session_id, key, slot) DO UPDATE SET value = excluded.value, since = excluded.since
WHERE c.value <> excluded.value;

-- name: begin_cells
-- Insert the missing ones of these cells (?2: [[key, slot, text], ...]); the others already hold their texts.
INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
SELECT ?1, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), json_extract(j.value, '$[2]'),
  s.checkpoint_count - ?3
FROM json_each(?2) AS j, __agents_states AS s WHERE s.session_id = ?1
ON CONFLICT (session_id, key, slot) DO NOTHING;

-- name: append_items
-- Append items (?3: [text, ...]) to the list under key ?2.
INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
SELECT ?1, ?2, printf('#%010d', j.key + COALESCE((
    SELECT CAST(substr(slot, 2) AS BIGINT) + 1 FROM __agents_custom_state
    WHERE session_id = ?1 AND key = ?2 AND slot >= '#' AND slot < '$'
    ORDER BY slot DESC LIMIT 1), 0)), j.value, s.checkpoint_count - ?4
FROM json_each(?3) AS j, __agents_states AS s WHERE s.session_id = ?1;

-- name: read_cells
-- The texts of those of these cells (?2: [[key, slot], ...]) that exist.
SELECT key, slot, value FROM __agents_custom_state WHERE session_id = ?1 AND (key, slot) IN (
  SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?2));

-- name: read_custom_state
-- All cells, the items of a list in order.
SELECT key, slot, value FROM __agents_custom_state WHERE session_id = ?1 ORDER BY key, slot;

-- name: read_custom_state_at
-- All cells as of a checkpoint (?2, made at ?3; NULL: the last one), the items of a list in order.
-- The parts of `__agents_history`, written out: with a number from a subquery, SQLite would read the whole view.
WITH at (number) AS (SELECT CASE WHEN CAST(?2 AS TEXT) IS NULL
  THEN (SELECT MAX(number) FROM __agents_checkpoints WHERE session_id = ?1)
  ELSE (SELECT number FROM __agents_checkpoints WHERE created_at = ?3 AND session_id = ?1 AND checkpoint_id = ?2) END)
SELECT c.key, c.slot, c.value FROM at, __agents_custom_state AS c WHERE c.session_id = ?1 AND c.since < at.number
UNION ALL SELECT h.key, h.slot, h.value FROM at, __agents_past AS h
WHERE h.session_id = ?1 AND h.number > at.number AND h.since < at.number
UNION ALL SELECT json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), json_extract(j.value, '$[2]')
FROM at, __agents_checkpoints AS p, json_each(p.overwritten) AS j
WHERE p.session_id = ?1 AND p.number > at.number AND json_extract(j.value, '$[3]') < at.number
ORDER BY 1, 2;

-- name: rewind_new_cells
-- Remove the cells that were written after a checkpoint.
DELETE FROM __agents_custom_state WHERE session_id = ?1 AND since >= ?2;

-- name: rewind_old_cells
-- Restore the cells of a checkpoint that have changed or disappeared since.
INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
SELECT ?1, key, slot, value, since FROM __agents_history WHERE session_id = ?1 AND number > ?2 AND since < ?2;

-- name: rewind_past
-- Remove the cells that were overwritten after a checkpoint; those stored in checkpoints go with them.
DELETE FROM __agents_past WHERE session_id = ?1 AND number > ?2;

-- name: rewind_checkpoints
-- Remove the checkpoints after one.
DELETE FROM __agents_checkpoints WHERE session_id = ?1 AND number > ?2;

-- name: rewind_session
-- Store in the session row how many checkpoints are left.
UPDATE __agents_states SET checkpoint_count = ?2 WHERE session_id = ?1;

-- name: shelve_messages
-- Move the messages after the first ?3 to the shelf ?2.
UPDATE __agents_messages SET session_id = ?2 WHERE session_id = ?1 AND sequence >= ?3;

-- name: shelve_cells
-- Move the cells that were written after a checkpoint to the shelf ?2.
UPDATE __agents_custom_state SET session_id = ?2 WHERE session_id = ?1 AND since >= ?3;

-- name: shelve_past
-- Move the cells that were overwritten after a checkpoint to the shelf ?2.
UPDATE __agents_past SET session_id = ?2 WHERE session_id = ?1 AND number > ?3;

-- name: shelve_checkpoints
-- Move the checkpoints after one to the shelf ?2.
UPDATE __agents_checkpoints SET session_id = ?2 WHERE session_id = ?1 AND number > ?3;

-- name: shelve_fork
-- Also copy that checkpoint to the shelf ?2: it may count messages that move to the shelf.
INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence, kind,
  message_count, status, version, state, created_at, overwritten)
SELECT ?2, number, checkpoint_id, step_id, step_count, stream_sequence, kind, message_count, status, version, state,
  created_at, overwritten FROM __agents_checkpoints WHERE session_id = ?1 AND number = ?3;

-- name: shelve_staging
-- Move all staged rows to the shelf ?2.
UPDATE __agents_staging SET session_id = ?2 WHERE session_id = ?1;

-- name: unshelve_old_cells
-- Remove the cells that changed or disappeared after the checkpoint on the branch of the shelf ?2.
DELETE FROM __agents_custom_state WHERE session_id = ?1 AND (key, slot) IN (
  SELECT key, slot FROM __agents_history WHERE session_id = ?2 AND number > ?3 AND since < ?3);

-- name: unshelve_fork
-- Remove that checkpoint, whose copy is on the shelf.
DELETE FROM __agents_checkpoints WHERE session_id = ?1 AND number = ?2;

-- name: move_rows
-- Restore the rows of one table (named in place of __agents_moved) that are on the shelf ?2.
UPDATE __agents_moved SET session_id = ?1 WHERE session_id = ?2;

-- name: drop_rows
-- Remove the rows of one table (named in place of __agents_moved) that are on the shelf ?1.
DELETE FROM __agents_moved WHERE session_id = ?1;

-- name: recount_session
-- Store in the session row how many messages and checkpoints it has after a move.
UPDATE __agents_states SET
  message_count = COALESCE((SELECT MAX(sequence) + 1 FROM __agents_messages WHERE session_id = ?1), 0),
  checkpoint_count = COALESCE((SELECT MAX(number) FROM __agents_checkpoints WHERE session_id = ?1), 0)
WHERE session_id = ?1;

-- name: put_branch
-- Store the record of a branch; its state (?5) only if given.
INSERT INTO __agents_branches (session_id, branch_id, shelf, about, state) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (session_id, branch_id) DO UPDATE SET about = excluded.about,
  state = COALESCE(excluded.state, __agents_branches.state);

-- name: drop_branch
-- Delete a branch's record.
DELETE FROM __agents_branches WHERE session_id = ?1 AND branch_id = ?2;

-- name: read_branches
-- The records of a session's branches.
SELECT branch_id, about FROM __agents_branches WHERE session_id = ?1;

-- name: read_branch_state
-- The session's fields when a branch was left.
SELECT state FROM __agents_branches WHERE session_id = ?1 AND branch_id = ?2;

-- name: stage
-- Stage what one tool call wrote; staging the call again replaces its row.
INSERT INTO __agents_staging (session_id, step_id, kind, tool_call_id, position, writes, result, token, staged_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (session_id, step_id, kind, tool_call_id) DO UPDATE SET position = excluded.position,
  writes = excluded.writes, result = excluded.result, token = excluded.token, staged_at = excluded.staged_at;

-- name: read_staged
-- The staged rows of a step.
SELECT kind, tool_call_id, position, writes, result, token, staged_at FROM __agents_staging
WHERE session_id = ?1 AND step_id = ?2;

-- name: discard_step
-- Drop the staged rows of a step.
DELETE FROM __agents_staging WHERE session_id = ?1 AND step_id = ?2 RETURNING 1;

-- name: unstage_step
-- Drop the promoted rows of a step; the count is not needed.
DELETE FROM __agents_staging WHERE session_id = ?1 AND step_id = ?2;

-- name: discard_all
-- Drop all staged rows.
DELETE FROM __agents_staging WHERE session_id = ?1 RETURNING 1;

-- name: insert_checkpoint
-- Record the commit; count, status, version and number are those of the session row as it is now.
INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence,
  kind, message_count, status, version, state, created_at)
SELECT ?1, checkpoint_count, ?2, ?3, ?4, ?5, ?6, message_count, status, version, ?7, ?8
FROM __agents_states WHERE session_id = ?1;

-- name: place_checkpoint
-- Store a new checkpoint's position in the stream ?3: ?4 chunks before the end of what the same batch has appended.
UPDATE __agents_checkpoints
SET stream_sequence = (SELECT latest_sequence FROM __agents_streams WHERE stream_id = ?3) - ?4
WHERE session_id = ?1 AND checkpoint_id = ?2
  AND number = (SELECT checkpoint_count FROM __agents_states WHERE session_id = ?1);

-- name: read_checkpoint
-- One checkpoint (?2, made at ?3; NULL: the last one).
SELECT checkpoint_id, number, step_id, step_count, stream_sequence, message_count, status, version, state, created_at,
  (SELECT s.created_at FROM __agents_states AS s WHERE s.session_id = ?1),
  (SELECT s.incarnation FROM __agents_states AS s WHERE s.session_id = ?1), kind
FROM __agents_checkpoints WHERE session_id = ?1 AND number = CASE WHEN CAST(?2 AS TEXT) IS NULL
  THEN (SELECT MAX(number) FROM __agents_checkpoints WHERE session_id = ?1)
  ELSE (SELECT number FROM __agents_checkpoints WHERE created_at = ?3 AND session_id = ?1 AND checkpoint_id = ?2) END;

-- name: read_checkpoints
-- A page of checkpoints, newest first.
SELECT checkpoint_id, number, step_id, step_count, stream_sequence, message_count, status, version, state, created_at,
  (SELECT s.created_at FROM __agents_states AS s WHERE s.session_id = ?1),
  (SELECT s.incarnation FROM __agents_states AS s WHERE s.session_id = ?1), kind
FROM __agents_checkpoints WHERE session_id = ?1 ORDER BY number DESC LIMIT ?2 OFFSET ?3;

-- name: count_checkpoints
-- How many checkpoints there are.
SELECT checkpoint_count FROM __agents_states WHERE session_id = ?1;

-- name: insert_run
-- Start a run, as the last of its session. A turn (?3) of 0 is the one after that of the latest run.
INSERT INTO __agents_runs (run_id, session_id, position, turn, status, step_count, start_sequence, started_at, metadata,
  lease_until, details)
SELECT ?2, ?1, COALESCE(r.position, 0) + 1, CASE WHEN ?3 = 0 THEN COALESCE(r.turn, 0) + 1 ELSE ?3 END, ?4, ?5, ?6, ?7, ?8,
  ?9, ?10
FROM (SELECT 1 AS one) AS o LEFT JOIN __agents_runs AS r ON r.session_id = ?1 AND r.position = (
  SELECT MAX(position) FROM __agents_runs WHERE session_id = ?1)
RETURNING turn;

-- name: update_run
-- Change the given fields of a run, if its status is one of ?2 and incarnation and owner epoch of its session are ?12 and ?13
-- (NULL: any).
UPDATE __agents_runs SET status = COALESCE(?3, status), step_count = COALESCE(?4, step_count),
  error = COALESCE(?5, error), output = COALESCE(?6, output), completed_at = COALESCE(?7, completed_at),
  lease_until = COALESCE(?8, lease_until), start_sequence = COALESCE(?9, start_sequence),
  metadata = COALESCE(?10, metadata), details = COALESCE(?11, details)
WHERE run_id = ?1 AND status IN (SELECT value FROM json_each(?2)) AND (?12 IS NULL OR EXISTS (
  SELECT 1 FROM __agents_states AS s WHERE s.session_id = __agents_runs.session_id AND s.incarnation = ?12
  AND (?13 IS NULL OR s.owner_epoch = ?13)))
RETURNING 1;

-- name: read_run
-- One run.
SELECT run_id, session_id, turn, status, step_count, start_sequence, started_at, completed_at, error, output, metadata,
  lease_until, details FROM __agents_runs WHERE run_id = ?1;

-- name: read_runs
-- The last ?2 runs of a session, latest first.
SELECT run_id, session_id, turn, status, step_count, start_sequence, started_at, completed_at, error, output, metadata,
  lease_until, details FROM __agents_runs WHERE session_id = ?1 ORDER BY position DESC LIMIT ?2;

-- name: put_ref
-- Store a ref to a child session; a known one is replaced and keeps its position.
INSERT INTO __agents_sub_session_refs (session_id, sub_session_id, position, agent_type, parent_tool_call_id, status,
  mode, name, remote_json, started_at, completed_at)
SELECT ?1, ?2, COALESCE((SELECT MAX(position) FROM __agents_sub_session_refs WHERE session_id = ?1), 0) + 1,
  ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 WHERE true
ON CONFLICT (session_id, sub_session_id) DO UPDATE SET agent_type = excluded.agent_type,
  parent_tool_call_id = excluded.parent_tool_call_id, status = excluded.status, mode = excluded.mode,
  name = excluded.name, remote_json = excluded.remote_json, started_at = excluded.started_at,
  completed_at = excluded.completed_at;

-- name: read_refs
-- The refs to child sessions, in the order in which they were added.
SELECT sub_session_id, agent_type, parent_tool_call_id, status, mode, name, remote_json, started_at, completed_at
FROM __agents_sub_session_refs WHERE session_id = ?1 ORDER BY position;

-- name: read_ref
-- One ref to a child session.
SELECT sub_session_id, agent_type, parent_tool_call_id, status, mode, name, remote_json, started_at, completed_at
FROM __agents_sub_session_refs WHERE session_id = ?1 AND sub_session_id = ?2;

-- name: set_flag
-- Set the interrupt flag.
INSERT INTO __agents_interrupt_flags (session_id, reason, run_id, timestamp, abort) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (session_id) DO UPDATE SET reason = excluded.reason, run_id = excluded.run_id,
  timestamp = excluded.timestamp, abort = excluded.abort;

-- name: clear_flag
-- Clear the interrupt flag.
DELETE FROM __agents_interrupt_flags WHERE session_id = ?1;

-- name: read_flag
-- The interrupt flag; one row if the session exists.
SELECT f.timestamp, f.reason, f.run_id, f.abort FROM __agents_states AS s
LEFT JOIN __agents_interrupt_flags AS f ON f.session_id = s.session_id WHERE s.session_id = ?1;

-- name: session_exists
-- One row if there is such a session.
SELECT 1 FROM __agents_states WHERE session_id = ?1;

-- name: read_session
-- A session with its flag.
SELECT s.session_id, s.agent_type, s.stream_id, s.parent_session_id, s.root_session_id, s.step_count, s.status,
  s.output, s.error, s.failure_reason, s.pending_client_tool_calls, s.completed_client_tool_calls,
  s.suspension_context, s.interrupt_context, s.expires_at, s.user_id, s.tags, s.metadata, s.version, s.resume_count,
  s.created_at, s.updated_at, s.message_count, s.checkpoint_count, f.timestamp, f.reason, f.run_id, f.abort,
  s.incarnation, s.owner_epoch, s.forked_from
FROM __agents_states AS s LEFT JOIN __agents_interrupt_flags AS f ON f.session_id = s.session_id
WHERE s.session_id = ?1;

-- name: fork_messages
-- Copy the messages of session ?2 up to the count ?3 (NULL: all).
INSERT INTO __agents_messages (session_id, sequence, message, created_at)
SELECT ?1, sequence, message, created_at FROM __agents_messages
WHERE session_id = ?2 AND (CAST(?3 AS BIGINT) IS NULL OR sequence < CAST(?3 AS BIGINT));

-- name: fork_cells
-- Copy the custom state of session ?2 as it is now.
INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
SELECT ?1, key, slot, value, 0 FROM __agents_custom_state WHERE session_id = ?2;

-- name: fork_cells_at
-- Copy the custom state of session ?2 as of the checkpoint of number ?3.
INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
SELECT ?1, key, slot, value, 0 FROM __agents_custom_state WHERE session_id = ?2 AND since < ?3
UNION ALL SELECT ?1, key, slot, value, 0 FROM __agents_history WHERE session_id = ?2 AND number > ?3 AND since < ?3;

-- name: fork_recount
-- Store in the new session how many messages were copied.
UPDATE __agents_states SET message_count = (SELECT COUNT(*) FROM __agents_messages WHERE session_id = ?1)
WHERE session_id = ?1;

-- name: delete_tree
-- Remove the rows of one table (named in place of __agents_doomed) of a session and its descendants, including shelves.
WITH RECURSIVE tree (session_id) AS (SELECT session_id FROM __agents_states WHERE session_id = ?1 UNION
  SELECT s.session_id FROM __agents_states AS s JOIN tree ON s.parent_session_id = tree.session_id)
DELETE FROM __agents_doomed WHERE session_id IN (SELECT session_id FROM tree UNION ALL
  SELECT b.shelf FROM __agents_branches AS b JOIN tree ON b.session_id = tree.session_id);

-- name: delete_tree_refs
-- Remove the refs of others to a session and its descendants; remote refs are not ours.
WITH RECURSIVE tree (session_id) AS (SELECT session_id FROM __agents_states WHERE session_id = ?1 UNION
  SELECT s.session_id FROM __agents_states AS s JOIN tree ON s.parent_session_id = tree.session_id)
DELETE FROM __agents_sub_session_refs
WHERE sub_session_id IN (SELECT session_id FROM tree) AND remote_json IS NULL;

-- name: states_table
-- The name of the sessions' table, for listings, whose conditions vary.
__agents_states;

-- name: labels_table
-- The name of the table of tags and metadata members.
__agents_session_labels;

-- name: label_place
-- The stored form of a label in that table.
?;

-- name: refs_table
-- The name of the refs' table, for updates of single fields.
__agents_sub_session_refs;

-- name: one_of
-- What follows a column that must hold one of the texts in a JSON array.
IN (SELECT value FROM json_each(?));

-- name: branches_table
-- The name of the branches' table, for the search for orphans.
__agents_branches;

-- name: runs_table
-- The name of the runs' table, for listings.
__agents_runs;
