-- What Postgres says differently from stream_queries.sql.

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
