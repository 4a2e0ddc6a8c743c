-- family: streams

-- Who owns a stream: a number that only grows. Writers and rewinds of an owner with a smaller one are refused.
ALTER TABLE __agents_streams ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
