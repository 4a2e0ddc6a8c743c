-- family: state

-- What a checkpoint or a staged row is, and whether a flag asks for an abort, was said in texts: a suffix of the step's id,
-- a tool call that no model makes, a mark before the reason.
ALTER TABLE __agents_checkpoints ADD COLUMN kind TEXT NOT NULL DEFAULT 'step';
UPDATE __agents_checkpoints SET kind = 'turn' WHERE step_id LIKE '%-turn';
UPDATE __agents_checkpoints SET kind = 'aside' WHERE step_id LIKE '%-aside';

ALTER TABLE __agents_staging RENAME TO __agents_staging_before;

CREATE TABLE __agents_staging (
  session_id TEXT NOT NULL,
  step_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  tool_call_id TEXT NOT NULL,
  position BIGINT NOT NULL,
  writes TEXT NOT NULL,
  result TEXT NOT NULL,
  token TEXT NOT NULL,
  staged_at BIGINT NOT NULL,
  PRIMARY KEY (session_id, step_id, kind, tool_call_id)
) WITHOUT ROWID;

INSERT INTO __agents_staging (session_id, step_id, kind, tool_call_id, position, writes, result, token, staged_at)
  SELECT session_id, step_id,
    CASE tool_call_id WHEN ':answer' THEN 'answer' WHEN ':summary' THEN 'summary' ELSE 'call' END,
    CASE WHEN tool_call_id IN (':answer', ':summary') THEN '' ELSE tool_call_id END,
    position, writes, result, token, staged_at
  FROM __agents_staging_before;

DROP TABLE __agents_staging_before;

ALTER TABLE __agents_interrupt_flags ADD COLUMN abort BIGINT NOT NULL DEFAULT 0;
UPDATE __agents_interrupt_flags SET abort = 1, reason = NULLIF(substr(reason, 8), '')
WHERE reason = char(30) || 'abort' OR substr(reason, 1, 7) = char(30) || 'abort' || char(30);
UPDATE __agents_interrupt_flags SET reason = substr(reason, 2)
WHERE abort = 0 AND substr(reason, 1, 2) = char(30) || char(30);
