-- family: streams

-- Streams: one row per stream with the counter of its sequences, its chunks, and what it remembers of its producers.
-- The first chunk after `floor` is the first one kept; `trimmed_to` says how far the rows below it are removed already.
CREATE TABLE __agents_streams (
  stream_id TEXT COLLATE "C" PRIMARY KEY,
  incarnation TEXT COLLATE "C" NOT NULL,
  status TEXT COLLATE "C" NOT NULL DEFAULT 'active',
  revision BIGINT NOT NULL DEFAULT 0,
  latest_sequence BIGINT NOT NULL DEFAULT 0,
  floor BIGINT NOT NULL DEFAULT 0,
  trimmed_to BIGINT NOT NULL DEFAULT 0,
  total_chunks BIGINT NOT NULL DEFAULT 0,
  largest_chunk BIGINT NOT NULL DEFAULT 1,
  final_output TEXT,
  error TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

CREATE TABLE __agents_stream_chunks (
  stream_id TEXT COLLATE "C" NOT NULL,
  sequence BIGINT NOT NULL,
  step BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  chunk TEXT NOT NULL,
  PRIMARY KEY (stream_id, sequence)
);

CREATE TABLE __agents_stream_producers (
  stream_id TEXT COLLATE "C" NOT NULL,
  producer_id TEXT COLLATE "C" NOT NULL,
  counter BIGINT NOT NULL,
  sequence BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (stream_id, producer_id)
);
