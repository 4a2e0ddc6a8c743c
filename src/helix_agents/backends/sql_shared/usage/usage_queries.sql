-- name: insert_entry
-- Store an entry unless its session has that id; returns a row if it was new.
INSERT INTO __agents_usage (
    session_id, id, kind, name, run_id, step_count, source, timestamp, parent_session_id, sub_session_id,
    prompt, completion, reasoning, cached, cache_written, total, duration_ms, success, amount_whole, amount_real,
    incarnation
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)
ON CONFLICT (session_id, id) DO NOTHING
RETURNING 1;

-- name: link_to_parent
-- Make an entry's session a child of the parent that the stored entry names.
INSERT INTO __agents_usage_links (parent_session_id, sub_session_id)
SELECT parent_session_id, session_id FROM __agents_usage
WHERE session_id = ?1 AND id = ?2 AND parent_session_id IS NOT NULL
ON CONFLICT (parent_session_id, sub_session_id) DO NOTHING;

-- name: link_to_child
-- Make the child that the stored entry names a child of the entry's session.
INSERT INTO __agents_usage_links (parent_session_id, sub_session_id)
SELECT session_id, sub_session_id FROM __agents_usage
WHERE session_id = ?1 AND id = ?2 AND sub_session_id IS NOT NULL
ON CONFLICT (parent_session_id, sub_session_id) DO NOTHING;

-- name: select_entries
-- The matching entries, newest first. The code puts `filter_` conditions in place of {filters}.
SELECT session_id, id, kind, name, run_id, step_count, source, timestamp, parent_session_id, sub_session_id,
    prompt, completion, reasoning, cached, cache_written, total, duration_ms, success, amount_whole, amount_real,
    incarnation
FROM __agents_usage
WHERE {filters}
ORDER BY timestamp DESC, session_id DESC, id DESC
LIMIT ?1 OFFSET ?2;

-- name: count_entries
-- The number of matching entries.
SELECT COUNT(*) FROM __agents_usage WHERE {filters};

-- name: session_entries
-- All matching entries, oldest first; meant for one session.
SELECT session_id, id, kind, name, run_id, step_count, source, timestamp, parent_session_id, sub_session_id,
    prompt, completion, reasoning, cached, cache_written, total, duration_ms, success, amount_whole, amount_real,
    incarnation
FROM __agents_usage
WHERE {filters}
ORDER BY timestamp, id;

-- name: filter_session_id
session_id = {value};

-- name: filter_run_id
run_id = {value};

-- name: filter_kinds
kind IN ({value});

-- name: filter_model
kind = 'tokens' AND name = {value};

-- name: filter_tool_name
kind = 'tool' AND name = {value};

-- name: filter_source
source = {value};

-- name: filter_timestamp_from
timestamp >= {value};

-- name: filter_timestamp_to
timestamp < {value};

-- name: filter_other_than
incarnation <> {value};

-- name: sums
-- The sums of one session by kind and name.
SELECT kind, name, COUNT(*), SUM(CASE WHEN success = 0 THEN 1 ELSE 0 END), SUM(duration_ms),
    SUM(prompt), SUM(completion), SUM(reasoning), SUM(cached), SUM(cache_written), SUM(total), SUM(amount_whole),
    SUM(amount_real)
FROM __agents_usage
WHERE session_id = ?1
GROUP BY kind, name;

-- name: tree_sums
-- The sums of a session and its descendants by kind and name. UNION keeps each session once and ends cycles.
WITH RECURSIVE tree (session_id) AS (
    SELECT CAST(?1 AS TEXT)
    UNION
    SELECT links.sub_session_id FROM __agents_usage_links AS links
    JOIN tree ON links.parent_session_id = tree.session_id
)
SELECT kind, name, COUNT(*), SUM(CASE WHEN success = 0 THEN 1 ELSE 0 END), SUM(duration_ms),
    SUM(prompt), SUM(completion), SUM(reasoning), SUM(cached), SUM(cache_written), SUM(total), SUM(amount_whole),
    SUM(amount_real)
FROM __agents_usage
WHERE session_id IN (SELECT session_id FROM tree)
GROUP BY kind, name;

-- name: delete_session
-- Remove the entries of one session; returns a row for each.
DELETE FROM __agents_usage WHERE session_id = ?1 RETURNING 1;

-- name: delete_life
-- Remove the entries of one session that have this incarnation or none; returns a row for each.
DELETE FROM __agents_usage WHERE session_id = ?1 AND (incarnation = ?2 OR incarnation IS NULL) RETURNING 1;

-- name: delete_tree
-- Remove the entries of a session and its descendants; returns a row for each.
WITH RECURSIVE tree (session_id) AS (
    SELECT CAST(?1 AS TEXT)
    UNION
    SELECT links.sub_session_id FROM __agents_usage_links AS links
    JOIN tree ON links.parent_session_id = tree.session_id
)
DELETE FROM __agents_usage WHERE session_id IN (SELECT session_id FROM tree) RETURNING 1;

-- name: delete_tree_links
-- Remove the links of a session and its descendants. Links from one of them lead to another of them, so none remain.
WITH RECURSIVE tree (session_id) AS (
    SELECT CAST(?1 AS TEXT)
    UNION
    SELECT links.sub_session_id FROM __agents_usage_links AS links
    JOIN tree ON links.parent_session_id = tree.session_id
)
DELETE FROM __agents_usage_links
WHERE sub_session_id IN (SELECT session_id FROM tree);
