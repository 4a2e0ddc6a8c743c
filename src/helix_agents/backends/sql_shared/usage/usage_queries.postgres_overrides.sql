-- What differs on Postgres from usage_queries.sql: a tree starts with an id in the collation of its table.

-- name: tree_sums
-- The sums of a session and its descendants by kind and name. UNION keeps each session once and ends cycles.
WITH RECURSIVE tree (session_id) AS (
    SELECT CAST(?1 AS TEXT) COLLATE "C"
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

-- name: delete_tree
-- Remove the entries of a session and its descendants; returns a row for each.
WITH RECURSIVE tree (session_id) AS (
    SELECT CAST(?1 AS TEXT) COLLATE "C"
    UNION
    SELECT links.sub_session_id FROM __agents_usage_links AS links
    JOIN tree ON links.parent_session_id = tree.session_id
)
DELETE FROM __agents_usage WHERE session_id IN (SELECT session_id FROM tree) RETURNING 1;

-- name: delete_tree_links
-- Remove the links of a session and its descendants. Links from one of them lead to another of them, so none remain.
WITH RECURSIVE tree (session_id) AS (
    SELECT CAST(?1 AS TEXT) COLLATE "C"
    UNION
    SELECT links.sub_session_id FROM __agents_usage_links AS links
    JOIN tree ON links.parent_session_id = tree.session_id
)
DELETE FROM __agents_usage_links
WHERE sub_session_id IN (SELECT session_id FROM tree);
