-- What differs on Postgres from memory_queries.sql: JSON arrays and full-text search.

-- name: get_memories
-- The memories of an entity whose ids are in a JSON array.
SELECT entity_id, id, source, content, metadata, embedding, created_at, updated_at
FROM __agents_memories
WHERE entity_id = ?1 AND id = ANY (ARRAY(SELECT json_array_elements_text(?2::json)));

-- name: match_memories
-- Id and words of the newest memories of an entity (and source, unless NULL) that the index finds.
SELECT id, words
FROM __agents_memories
WHERE search @@ CAST(CAST(?2 AS TEXT) AS tsquery) AND entity_id = ?1 AND (CAST(?3 AS TEXT) IS NULL OR source = ?3)
ORDER BY updated_at DESC, id DESC
LIMIT ?4;
