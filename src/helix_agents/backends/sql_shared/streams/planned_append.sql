-- The statements of an append, for databases with interactive transactions.

-- name: advance_if_welcome
-- Take the next ?2 sequences, unless the batch is a repeat or the stream accepts none from this owner. ?3 longest
-- text, ?4 now, ?5 expired_before, ?6 fence, ?7 producer, ?8 its number of the last chunk.
UPDATE __agents_streams
SET latest_sequence = latest_sequence + ?2,
  total_chunks = total_chunks + ?2,
  largest_chunk = CASE WHEN largest_chunk < ?3 THEN ?3 ELSE largest_chunk END,
  fence = COALESCE(?6, fence),
  updated_at = ?4
WHERE stream_id = ?1 AND status = 'active' AND updated_at > ?5 AND fence <= COALESCE(?6, fence) AND NOT EXISTS (
  SELECT 1 FROM __agents_stream_producers WHERE stream_id = ?1 AND producer_id = ?7 AND counter >= ?8)
RETURNING latest_sequence, total_chunks, created_at;

-- name: insert_segment
INSERT INTO __agents_stream_segments (stream_id, first_sequence, last_sequence, step, created_at, chunks)
VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: remember
-- The number ?3 and the sequence ?4 of the last chunk of producer ?2. ?5 now.
INSERT INTO __agents_stream_producers (stream_id, producer_id, counter, sequence, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (stream_id, producer_id)
DO UPDATE SET counter = excluded.counter, sequence = excluded.sequence, updated_at = excluded.updated_at;

-- name: has_repeated
SELECT 1 FROM __agents_stream_producers WHERE stream_id = ?1 AND producer_id = ?2 AND counter >= ?3;
