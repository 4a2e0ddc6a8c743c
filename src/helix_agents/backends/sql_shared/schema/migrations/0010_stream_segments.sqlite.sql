-- family: streams

-- The chunks of one append lie in one row, a JSON array of their texts: on Cloudflare every row written is billed, and
-- elsewhere a row costs more than a chunk. All of them have one step, and their sequences follow each other.
CREATE TABLE __agents_stream_segments (
  stream_id TEXT NOT NULL,
  first_sequence BIGINT NOT NULL,
  last_sequence BIGINT NOT NULL,
  step BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  chunks TEXT NOT NULL,
  PRIMARY KEY (stream_id, first_sequence)
) WITHOUT ROWID;

INSERT INTO __agents_stream_segments (stream_id, first_sequence, last_sequence, step, created_at, chunks)
  SELECT stream_id, sequence, sequence, step, created_at, json_array(chunk) FROM __agents_stream_chunks;

DROP TABLE __agents_stream_chunks;

-- The same chunk by chunk, for people who look.
CREATE VIEW __agents_stream_chunks AS
SELECT g.stream_id, g.first_sequence + j.key AS sequence, g.step, g.created_at, j.value AS chunk
FROM __agents_stream_segments AS g, json_each(g.chunks) AS j;

-- One tree instead of a table and the index of its key.
ALTER TABLE __agents_stream_producers RENAME TO __agents_stream_producers_before;

CREATE TABLE __agents_stream_producers (
  stream_id TEXT NOT NULL,
  producer_id TEXT NOT NULL,
  counter BIGINT NOT NULL,
  sequence BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (stream_id, producer_id)
) WITHOUT ROWID;

INSERT INTO __agents_stream_producers (stream_id, producer_id, counter, sequence, updated_at)
  SELECT stream_id, producer_id, counter, sequence, updated_at FROM __agents_stream_producers_before;

DROP TABLE __agents_stream_producers_before;
