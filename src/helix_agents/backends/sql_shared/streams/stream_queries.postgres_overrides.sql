-- What differs on Postgres from stream_queries.sql.

-- name: insert_chunks
-- The texts of the JSON array ?5, the first of them ?2 below the latest sequence. ?3 their step, ?4 now.
INSERT INTO __agents_stream_chunks (stream_id, sequence, step, created_at, chunk)
SELECT s.stream_id, s.latest_sequence - ?2::bigint + e.position - 1, ?3::bigint, ?4::bigint, e.value
FROM __agents_streams s, json_array_elements_text(?5::text::json) WITH ORDINALITY AS e (value, position)
WHERE s.stream_id = ?1::text;

-- name: remember_producer
-- The number and the sequence of the last chunk of producer ?2. ?3 number, ?4 now.
INSERT INTO __agents_stream_producers (stream_id, producer_id, counter, sequence, updated_at)
SELECT stream_id, ?2::text, ?3::bigint, latest_sequence, ?4::bigint FROM __agents_streams WHERE stream_id = ?1::text
ON CONFLICT (stream_id, producer_id)
DO UPDATE SET counter = excluded.counter, sequence = excluded.sequence, updated_at = excluded.updated_at;

-- name: small_chunks
-- Kept chunks after ?2, at most ?3, if so many of the largest chunk of the stream stay below ?4 characters.
SELECT sequence, step, chunk FROM __agents_stream_chunks
WHERE stream_id = ?1
  AND sequence > (
    SELECT GREATEST(floor, CAST(?2 AS BIGINT)) FROM __agents_streams
    WHERE stream_id = ?1 AND largest_chunk <= CAST(?4 AS BIGINT) / CAST(?3 AS BIGINT)
  )
ORDER BY sequence LIMIT CAST(?3 AS BIGINT);

-- name: large_chunks
-- The same for a stream with large chunks: no further one once ?4 characters are reached.
SELECT sequence, step, chunk FROM (
  SELECT sequence, step, chunk,
    SUM(LENGTH(chunk)) OVER (ORDER BY sequence ROWS UNBOUNDED PRECEDING) - LENGTH(chunk) AS chars_before
  FROM __agents_stream_chunks
  WHERE stream_id = ?1
    AND sequence > (
      SELECT GREATEST(floor, CAST(?2 AS BIGINT)) FROM __agents_streams
      WHERE stream_id = ?1 AND largest_chunk > CAST(?4 AS BIGINT) / CAST(?3 AS BIGINT)
    )
  ORDER BY sequence LIMIT CAST(?3 AS BIGINT)
) AS page
WHERE chars_before < CAST(?4 AS BIGINT)
ORDER BY sequence;

-- name: head
-- The row of a living stream with the sequence of its first kept chunk. ?2 expired_before.
SELECT s.stream_id, s.incarnation, s.status, s.revision, s.latest_sequence, s.floor,
  COALESCE(
    (SELECT c.sequence FROM __agents_stream_chunks c
     WHERE c.stream_id = s.stream_id AND c.sequence > s.floor ORDER BY c.sequence LIMIT 1),
    s.latest_sequence + 1
  ),
  s.total_chunks, s.final_output, s.error, s.created_at, s.updated_at, s.fence
FROM __agents_streams s
WHERE s.stream_id = ?1 AND s.updated_at > ?2;

-- name: drop_expired_chunks
-- The chunks of a stream that has expired. ?2 expired_before.
DELETE FROM __agents_stream_chunks
WHERE stream_id IN (SELECT stream_id FROM __agents_streams WHERE stream_id = ?1 AND updated_at <= ?2);

-- name: keep_newest
-- Raise the floor so that ?2 chunks are retained: by arithmetic if there are no holes, otherwise by walking the index.
UPDATE __agents_streams
SET floor = CASE
    WHEN latest_sequence - floor = total_chunks THEN latest_sequence - ?2
    ELSE (SELECT c.sequence FROM __agents_stream_chunks c
          WHERE c.stream_id = ?1 AND c.sequence > __agents_streams.floor
          ORDER BY c.sequence DESC LIMIT 1 OFFSET ?2)
  END,
  total_chunks = ?2
WHERE stream_id = ?1 AND total_chunks > ?2
RETURNING floor, trimmed_to;

-- name: keep_fresh
-- Raise the floor over the chunks at the front that were written at ?2 or earlier.
UPDATE __agents_streams
SET floor = (
    SELECT MAX(d.sequence) FROM __agents_stream_chunks d
    WHERE d.stream_id = ?1 AND d.sequence < (
      SELECT c.sequence FROM __agents_stream_chunks c
      WHERE c.stream_id = ?1 AND c.sequence > __agents_streams.floor AND c.created_at > ?2
      ORDER BY c.sequence LIMIT 1
    )
  ),
  total_chunks = total_chunks - (
    SELECT COUNT(*) FROM __agents_stream_chunks d
    WHERE d.stream_id = ?1 AND d.sequence > __agents_streams.floor AND d.sequence < (
      SELECT c.sequence FROM __agents_stream_chunks c
      WHERE c.stream_id = ?1 AND c.sequence > __agents_streams.floor AND c.created_at > ?2
      ORDER BY c.sequence LIMIT 1
    )
  )
WHERE stream_id = ?1 AND (
  SELECT c.created_at FROM __agents_stream_chunks c
  WHERE c.stream_id = ?1 AND c.sequence > __agents_streams.floor
  ORDER BY c.sequence LIMIT 1
) <= ?2
RETURNING floor, trimmed_to;

-- name: trim_chunks
-- Remove the rows below the floor.
DELETE FROM __agents_stream_chunks
WHERE stream_id = ?1 AND sequence <= (SELECT floor FROM __agents_streams WHERE stream_id = ?1);

-- name: count_beyond_step
-- How many kept chunks have a higher step than ?2.
SELECT COUNT(*) FROM __agents_stream_chunks
WHERE stream_id = ?1 AND step > ?2 AND sequence > (SELECT floor FROM __agents_streams WHERE stream_id = ?1);

-- name: drop_beyond_step
-- Remove the chunks with a higher step than ?2.
DELETE FROM __agents_stream_chunks WHERE stream_id = ?1 AND step > ?2;

-- name: recount
-- Recount the retained chunks.
UPDATE __agents_streams
SET total_chunks = (
  SELECT COUNT(*) FROM __agents_stream_chunks c
  WHERE c.stream_id = ?1 AND c.sequence > __agents_streams.floor
)
WHERE stream_id = ?1;

-- name: delete_chunks
-- All chunks of the stream.
DELETE FROM __agents_stream_chunks WHERE stream_id = ?1;
