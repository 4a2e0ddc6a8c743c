-- What Postgres says differently from usage_queries.sql: a tree begins with an id in the order of its table.

-- name: tree_sums
-- The sums of a session and all below it by kind and name. UNION keeps each session once and ends circles.
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
-- Remove the entries of a session and of all below it; a row comes back for each.
WITH RECURSIVE tree (session_id) AS (
    SELECT CAST(?1 AS TEXT) COLLATE "C"
    UNION
    SELECT links.sub_session_id FROM __agents_usage_links AS links
    JOIN tree ON links.parent_session_id = tree.session_id
)
DELETE FROM __agents_usage WHERE session_id IN (SELECT session_id FROM tree) RETURNING 1;

-- name: delete_tree_links
-- Forget where a session and all below it belong. Links from one of them lead to another of them, so this is all.
WITH RECURSIVE tree (session_id) AS (
    SELECT CAST(?1 AS TEXT) COLLATE "C"
    UNION
    SELECT links.sub_session_id FROM __agents_usage_links AS links
    JOIN tree ON links.parent_session_id = tree.session_id
)
DELETE FROM __agents_usage_links
WHERE sub_session_id IN (SELECT session_id FROM tree);
