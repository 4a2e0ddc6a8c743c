-- Every statement of streams. In all of them ?1 is the stream. A stream that was last written at `expired_before` or
-- earlier counts as missing. `fence` is that of the caller, or NULL: a row with a larger one is not changed.

-- name: head
-- The row of a living stream with the sequence of its first kept chunk. ?2 expired_before.
SELECT s.stream_id, s.incarnation, s.status, s.revision, s.latest_sequence, s.floor,
  COALESCE(
    (SELECT CASE WHEN g.first_sequence > s.floor THEN g.first_sequence ELSE s.floor + 1 END
     FROM __agents_stream_segments g
     WHERE g.stream_id = s.stream_id AND g.last_sequence > s.floor AND g.first_sequence >= COALESCE(
       (SELECT MAX(b.first_sequence) FROM __agents_stream_segments b
        WHERE b.stream_id = s.stream_id AND b.first_sequence <= s.floor + 1), 0)
     ORDER BY g.first_sequence LIMIT 1),
    s.latest_sequence + 1
  ),
  s.total_chunks, s.final_output, s.error, s.created_at, s.updated_at, s.fence
FROM __agents_streams s
WHERE s.stream_id = ?1 AND s.updated_at > ?2;

-- name: small_chunks
-- The rows with the retained chunks after ?2: at most ?3 chunks, few enough to stay below ?4 characters even if all
-- are as large as the stream's largest, plus the rest of the last row. Nothing if that would be fewer
-- than 256. A page ends that many sequences after its first chunk, so that no more rows are read than needed.
WITH start (at, room) AS (
  SELECT CASE WHEN floor > ?2 THEN floor ELSE ?2 END,
    CASE WHEN ?4 / largest_chunk < ?3 THEN ?4 / largest_chunk ELSE ?3 END
  FROM __agents_streams WHERE stream_id = ?1 AND largest_chunk <= ?4 / 256
),
opening (row, behind) AS (
  SELECT g.first_sequence, (CASE WHEN g.first_sequence > start.at THEN g.first_sequence ELSE start.at + 1 END) + start.room
  FROM start, __agents_stream_segments g
  WHERE g.stream_id = ?1 AND g.last_sequence > start.at AND g.first_sequence >= COALESCE(
    (SELECT MAX(b.first_sequence) FROM __agents_stream_segments b
     WHERE b.stream_id = ?1 AND b.first_sequence <= start.at + 1), 0)
  ORDER BY g.first_sequence LIMIT 1
)
SELECT g.first_sequence, g.step, g.chunks
FROM opening AS o CROSS JOIN __agents_stream_segments g
WHERE g.stream_id = ?1 AND g.first_sequence >= o.row AND g.first_sequence < o.behind
ORDER BY g.first_sequence;

-- name: large_chunks
-- The same for a stream with large chunks: no further row once ?4 characters are reached.
WITH start (at) AS (
  SELECT CASE WHEN floor > ?2 THEN floor ELSE ?2 END
  FROM __agents_streams WHERE stream_id = ?1 AND largest_chunk > ?4 / 256
),
opening (row, behind) AS (
  SELECT g.first_sequence, (CASE WHEN g.first_sequence > start.at THEN g.first_sequence ELSE start.at + 1 END) + ?3
  FROM start, __agents_stream_segments g
  WHERE g.stream_id = ?1 AND g.last_sequence > start.at AND g.first_sequence >= COALESCE(
    (SELECT MAX(b.first_sequence) FROM __agents_stream_segments b
     WHERE b.stream_id = ?1 AND b.first_sequence <= start.at + 1), 0)
  ORDER BY g.first_sequence LIMIT 1
)
SELECT first_sequence, step, chunks FROM (
  SELECT g.first_sequence, g.step, g.chunks,
    SUM(LENGTH(g.chunks)) OVER (ORDER BY g.first_sequence ROWS UNBOUNDED PRECEDING) - LENGTH(g.chunks) AS chars_before
  FROM opening AS o CROSS JOIN __agents_stream_segments g
  WHERE g.stream_id = ?1 AND g.first_sequence >= o.row AND g.first_sequence < o.behind
) AS page
WHERE chars_before < ?4
ORDER BY first_sequence;

-- name: lock_expired
-- Take the row of an expired stream, so that no other writer revives it. ?2 expired_before.
UPDATE __agents_streams SET updated_at = updated_at WHERE stream_id = ?1 AND updated_at <= ?2;

-- name: drop_expired_chunks
-- The chunks of a stream that has expired. ?2 expired_before.
DELETE FROM __agents_stream_segments
WHERE stream_id IN (SELECT stream_id FROM __agents_streams WHERE stream_id = ?1 AND updated_at <= ?2);

-- name: drop_expired_producers
-- The producers of a stream that has expired. ?2 expired_before.
DELETE FROM __agents_stream_producers
WHERE stream_id IN (SELECT stream_id FROM __agents_streams WHERE stream_id = ?1 AND updated_at <= ?2);

-- name: empty_expired
-- The row of a stream that has expired keeps its counter only. ?2 expired_before.
UPDATE __agents_streams SET floor = latest_sequence, trimmed_to = latest_sequence, total_chunks = 0
WHERE stream_id = ?1 AND updated_at <= ?2;

-- name: revive
-- Restart an expired stream; its sequences continue. ?2 expired_before, ?3 now, ?4 fence.
UPDATE __agents_streams
SET status = 'active', final_output = NULL, error = NULL, revision = revision + 1, created_at = ?3, updated_at = ?3
WHERE stream_id = ?1 AND updated_at <= ?2 AND fence <= COALESCE(CAST(?4 AS BIGINT), fence);

-- name: raise_fence
-- Raise the fence to ?2, that of a new owner.
UPDATE __agents_streams SET fence = ?2 WHERE stream_id = ?1 AND fence < ?2;

-- name: create
-- A new stream, unless there is one. ?2 incarnation, ?3 now.
INSERT INTO __agents_streams (stream_id, incarnation, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)
ON CONFLICT (stream_id) DO NOTHING;

-- name: create_owned
-- A new stream with an owner, unless there is one. ?2 incarnation, ?3 now, ?4 fence.
INSERT INTO __agents_streams (stream_id, incarnation, created_at, updated_at, fence) VALUES (?1, ?2, ?3, ?3, ?4)
ON CONFLICT (stream_id) DO NOTHING;

-- name: refuse_other
-- Undo the batch unless the stream is the incarnation ?2.
INSERT INTO __agents_guard (reason)
SELECT 'stream' WHERE NOT EXISTS (SELECT 1 FROM __agents_streams WHERE stream_id = ?1 AND incarnation = ?2);

-- name: refuse_moved
-- Undo the batch unless the last sequence of the stream is ?2.
INSERT INTO __agents_guard (reason)
SELECT 'stream' WHERE NOT EXISTS (SELECT 1 FROM __agents_streams WHERE stream_id = ?1 AND latest_sequence = ?2);

-- name: advance
-- Take the next ?2 sequences and raise the fence; comes first because it locks the row. ?3 longest text, ?4 now,
-- ?5 expired_before, ?6 fence.
UPDATE __agents_streams
SET latest_sequence = latest_sequence + ?2,
  total_chunks = total_chunks + ?2,
  largest_chunk = CASE WHEN largest_chunk < ?3 THEN ?3 ELSE largest_chunk END,
  fence = CASE WHEN fence < CAST(?6 AS BIGINT) THEN CAST(?6 AS BIGINT) ELSE fence END,
  updated_at = ?4
WHERE stream_id = ?1 AND updated_at > ?5
RETURNING latest_sequence;

-- name: refuse_repeated
-- Undo the batch if the producer ?2 has stored its chunk number ?3 before.
INSERT INTO __agents_guard (reason)
SELECT 'producer' FROM __agents_stream_producers WHERE stream_id = ?1 AND producer_id = ?2 AND counter >= ?3;

-- name: refuse_inactive
-- Undo the batch if the stream accepts no chunks, or none from this owner. ?2 expired_before, ?3 fence.
INSERT INTO __agents_guard (reason)
SELECT 'stream' WHERE NOT EXISTS (
  SELECT 1 FROM __agents_streams
  WHERE stream_id = ?1 AND status = 'active' AND updated_at > ?2 AND fence <= COALESCE(CAST(?3 AS BIGINT), fence)
);

-- name: refuse_missing
-- Undo the batch if there is no such stream, or it has a newer owner. ?2 expired_before, ?3 fence.
INSERT INTO __agents_guard (reason)
SELECT 'stream' WHERE NOT EXISTS (
  SELECT 1 FROM __agents_streams
  WHERE stream_id = ?1 AND updated_at > ?2 AND fence <= COALESCE(CAST(?3 AS BIGINT), fence)
);

-- name: insert_chunks
-- The texts of the JSON array ?5, the first of them ?2 below the latest sequence. ?3 their step, ?4 now.
INSERT INTO __agents_stream_segments (stream_id, first_sequence, last_sequence, step, created_at, chunks)
SELECT s.stream_id, s.latest_sequence - ?2, s.latest_sequence - ?2 + json_array_length(?5) - 1, ?3, ?4, ?5
FROM __agents_streams s
WHERE s.stream_id = ?1;

-- name: remember_producer
-- The number and the sequence of the last chunk of producer ?2. ?3 number, ?4 now.
INSERT INTO __agents_stream_producers (stream_id, producer_id, counter, sequence, updated_at)
SELECT stream_id, ?2, ?3, latest_sequence, ?4 FROM __agents_streams WHERE stream_id = ?1
ON CONFLICT (stream_id, producer_id)
DO UPDATE SET counter = excluded.counter, sequence = excluded.sequence, updated_at = excluded.updated_at;

-- name: repeated
-- The sequence that a producer's last chunk got. ?2 producer.
SELECT sequence FROM __agents_stream_producers WHERE stream_id = ?1 AND producer_id = ?2;

-- name: keep_newest
-- Raise the floor so that ?2 chunks are retained: by arithmetic if there are no holes, otherwise by adding up rows from
-- the newest on.
UPDATE __agents_streams
SET floor = CASE
    WHEN latest_sequence - floor = total_chunks THEN latest_sequence - ?2
    ELSE (SELECT w.last_sequence - (?2 - w.newer) FROM (
            SELECT g.last_sequence, g.last_sequence - g.first_sequence + 1 AS size,
              SUM(g.last_sequence - g.first_sequence + 1)
                OVER (ORDER BY g.first_sequence DESC ROWS UNBOUNDED PRECEDING)
                - (g.last_sequence - g.first_sequence + 1) AS newer
            FROM __agents_stream_segments g
            WHERE g.stream_id = ?1 AND g.last_sequence > __agents_streams.floor
          ) AS w
          WHERE w.newer <= ?2 AND w.newer + w.size > ?2)
  END,
  total_chunks = ?2
WHERE stream_id = ?1 AND total_chunks > ?2
RETURNING floor, trimmed_to;

-- name: keep_fresh
-- Raise the floor over the chunks at the front that were written at ?2 or earlier.
UPDATE __agents_streams
SET floor = (
    SELECT MAX(d.last_sequence) FROM __agents_stream_segments d
    WHERE d.stream_id = ?1 AND d.first_sequence < (
      SELECT c.first_sequence FROM __agents_stream_segments c
      WHERE c.stream_id = ?1 AND c.last_sequence > __agents_streams.floor AND c.created_at > ?2
      ORDER BY c.first_sequence LIMIT 1
    )
  ),
  total_chunks = total_chunks - (
    SELECT SUM(d.last_sequence - MAX(d.first_sequence - 1, __agents_streams.floor)) FROM __agents_stream_segments d
    WHERE d.stream_id = ?1 AND d.last_sequence > __agents_streams.floor AND d.first_sequence < (
      SELECT c.first_sequence FROM __agents_stream_segments c
      WHERE c.stream_id = ?1 AND c.last_sequence > __agents_streams.floor AND c.created_at > ?2
      ORDER BY c.first_sequence LIMIT 1
    )
  )
WHERE stream_id = ?1 AND (
  SELECT c.created_at FROM __agents_stream_segments c
  WHERE c.stream_id = ?1 AND c.last_sequence > __agents_streams.floor AND c.first_sequence >= COALESCE(
    (SELECT MAX(b.first_sequence) FROM __agents_stream_segments b
     WHERE b.stream_id = ?1 AND b.first_sequence <= __agents_streams.floor + 1), 0)
  ORDER BY c.first_sequence LIMIT 1
) <= ?2
RETURNING floor, trimmed_to;

-- name: trim_chunks
-- Remove the rows below the floor; a row that is partly below it stays.
DELETE FROM __agents_stream_segments
WHERE stream_id = ?1 AND first_sequence <= (SELECT floor FROM __agents_streams WHERE stream_id = ?1)
  AND last_sequence <= (SELECT floor FROM __agents_streams WHERE stream_id = ?1);

-- name: trimmed
-- Store up to where rows have been removed.
UPDATE __agents_streams SET trimmed_to = floor WHERE stream_id = ?1;

-- name: set_status
-- Change the status to ?2 if it is ?3, ?4 or ?5. ?6 final output, ?7 error, ?8 now, ?9 expired_before, ?10 fence.
UPDATE __agents_streams
SET status = ?2, final_output = ?6, error = ?7, revision = revision + 1, updated_at = ?8
WHERE stream_id = ?1 AND status IN (?3, ?4, ?5) AND updated_at > ?9
  AND fence <= COALESCE(CAST(?10 AS BIGINT), fence);

-- name: begin_rewind
-- Take one sequence for the marker; comes first because it locks the row. ?2 its length, ?3 now, ?4 expired_before,
-- ?5 fence.
UPDATE __agents_streams
SET revision = revision + 1,
  latest_sequence = latest_sequence + 1,
  largest_chunk = CASE WHEN largest_chunk < ?2 THEN ?2 ELSE largest_chunk END,
  updated_at = ?3,
  fence = COALESCE(CAST(?5 AS BIGINT), fence)
WHERE stream_id = ?1 AND updated_at > ?4 AND fence <= COALESCE(CAST(?5 AS BIGINT), fence);

-- name: count_beyond_step
-- How many kept chunks have a higher step than ?2.
SELECT COALESCE(SUM(g.last_sequence - MAX(g.first_sequence - 1, s.floor)), 0)
FROM __agents_streams AS s CROSS JOIN __agents_stream_segments AS g
WHERE s.stream_id = ?1 AND g.stream_id = ?1 AND g.step > ?2 AND g.last_sequence > s.floor;

-- name: drop_beyond_step
-- Remove the chunks with a higher step than ?2.
DELETE FROM __agents_stream_segments WHERE stream_id = ?1 AND step > ?2;

-- name: recount
-- Recount the retained chunks.
UPDATE __agents_streams
SET total_chunks = (
  SELECT COALESCE(SUM(g.last_sequence - MAX(g.first_sequence - 1, __agents_streams.floor)), 0)
  FROM __agents_stream_segments g
  WHERE g.stream_id = ?1 AND g.last_sequence > __agents_streams.floor
)
WHERE stream_id = ?1;

-- name: clear
-- Reset a stream, except for its counter.
UPDATE __agents_streams
SET status = 'active', final_output = NULL, error = NULL, floor = 0, trimmed_to = 0
WHERE stream_id = ?1;

-- name: forget_producers
-- Forget the producers that have been silent since ?2.
DELETE FROM __agents_stream_producers WHERE stream_id = ?1 AND updated_at <= ?2;

-- name: delete_stream
-- The row of the stream, unless it has a newer owner; comes first because it locks. ?2 fence.
DELETE FROM __agents_streams WHERE stream_id = ?1 AND fence <= COALESCE(CAST(?2 AS BIGINT), fence);

-- name: refuse_kept
-- Undo the batch if the row of the stream was not deleted.
INSERT INTO __agents_guard (reason)
SELECT 'stream' FROM __agents_streams WHERE stream_id = ?1;

-- name: delete_chunks
-- All chunks of the stream.
DELETE FROM __agents_stream_segments WHERE stream_id = ?1;

-- name: delete_producers
-- The positions of all producers of the stream.
DELETE FROM __agents_stream_producers WHERE stream_id = ?1;

-- name: expired
-- Some streams that expired at ?1 or earlier and still hold chunks.
SELECT stream_id FROM __agents_streams WHERE updated_at <= ?1 AND total_chunks > 0 LIMIT 50;
