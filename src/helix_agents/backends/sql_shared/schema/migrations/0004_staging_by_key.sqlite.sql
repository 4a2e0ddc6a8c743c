-- family: state

-- Staged rows are only ever found by their key and live for one step. Kept in the tree of the key itself, a row is
-- written once instead of twice, and dropped once.
ALTER TABLE __agents_staging RENAME TO __agents_staging_before;

CREATE TABLE __agents_staging (
  session_id TEXT NOT NULL,
  step_id TEXT NOT NULL,
  tool_call_id TEXT NOT NULL,
  position BIGINT NOT NULL,
  writes TEXT NOT NULL,
  result TEXT NOT NULL,
  token TEXT NOT NULL,
  staged_at BIGINT NOT NULL,
  PRIMARY KEY (session_id, step_id, tool_call_id)
) WITHOUT ROWID;

INSERT INTO __agents_staging (session_id, step_id, tool_call_id, position, writes, result, token, staged_at)
  SELECT session_id, step_id, tool_call_id, position, writes, result, token, staged_at FROM __agents_staging_before;

DROP TABLE __agents_staging_before;
