-- name: put_memory
-- Store a memory, replacing any with its id; return when that was first stored.
INSERT INTO __agents_memories
    (entity_id, id, source, content, metadata, embedding, created_at, updated_at, scope, words)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (entity_id, id) DO UPDATE SET
    source = excluded.source, content = excluded.content, metadata = excluded.metadata,
    embedding = excluded.embedding, updated_at = excluded.updated_at, words = excluded.words
RETURNING created_at;

-- name: get_memories
-- The memories of an entity whose ids are in a JSON array.
SELECT entity_id, id, source, content, metadata, embedding, created_at, updated_at
FROM __agents_memories
WHERE entity_id = ?1 AND id IN (SELECT value FROM json_each(?2));

-- name: match_memories
-- Id and words of the newest memories of an entity (and source, unless NULL) that the index finds. CROSS JOIN makes
-- SQLite query the index first and only once; by default it queries it for every memory of the entity.
SELECT memories.id, memories.words
FROM __agents_memories_index
CROSS JOIN __agents_memories AS memories ON memories.memory_number = __agents_memories_index.rowid
WHERE __agents_memories_index MATCH ?2 AND memories.entity_id = ?1 AND (CAST(?3 AS TEXT) IS NULL OR memories.source = ?3)
ORDER BY memories.updated_at DESC, memories.id DESC
LIMIT ?4;

-- name: newest_vectors
-- Id and embedding of the newest memories of an entity (and source, unless NULL) that have one.
SELECT id, embedding
FROM __agents_memories
WHERE entity_id = ?1 AND embedding IS NOT NULL AND (CAST(?2 AS TEXT) IS NULL OR source = ?2)
ORDER BY updated_at DESC, id DESC
LIMIT ?3;

-- name: list_memories
-- The memories of an entity (and source, unless NULL), newest first.
SELECT entity_id, id, source, content, metadata, embedding, created_at, updated_at
FROM __agents_memories
WHERE entity_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR source = ?2)
ORDER BY updated_at DESC, id DESC
LIMIT ?3 OFFSET ?4;

-- name: count_memories
-- How many memories an entity (and source, unless NULL) has.
SELECT COUNT(*) FROM __agents_memories WHERE entity_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR source = ?2);

-- name: delete_memory
-- Forget one memory; returns a row if there was one.
DELETE FROM __agents_memories WHERE entity_id = ?1 AND id = ?2 RETURNING 1;

-- name: delete_entity
-- Forget all memories of an entity (and source, unless NULL); returns a row for each.
DELETE FROM __agents_memories WHERE entity_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR source = ?2) RETURNING 1;

-- name: list_entities
-- The pairs of entity and source (of one source, unless NULL) with their counts, in order.
SELECT entity_id, source, COUNT(*), MAX(updated_at)
FROM __agents_memories
WHERE (CAST(?1 AS TEXT) IS NULL OR source = ?1)
GROUP BY entity_id, source
ORDER BY entity_id, source
LIMIT ?2 OFFSET ?3;

-- name: count_entities
-- How many pairs of entity and source (of one source, unless NULL) there are.
SELECT COUNT(*) FROM (
    SELECT DISTINCT entity_id, source FROM __agents_memories WHERE (CAST(?1 AS TEXT) IS NULL OR source = ?1)
) AS pairs;

-- name: list_sources
-- The sources of one entity (or one of them, unless NULL) with their counts, in order.
SELECT entity_id, source, COUNT(*), MAX(updated_at)
FROM __agents_memories
WHERE entity_id = ?4 AND (CAST(?1 AS TEXT) IS NULL OR source = ?1)
GROUP BY entity_id, source
ORDER BY entity_id, source
LIMIT ?2 OFFSET ?3;

-- name: count_sources
-- How many sources (or whether one, unless NULL) an entity has.
SELECT COUNT(DISTINCT source) FROM __agents_memories
WHERE entity_id = ?2 AND (CAST(?1 AS TEXT) IS NULL OR source = ?1);
