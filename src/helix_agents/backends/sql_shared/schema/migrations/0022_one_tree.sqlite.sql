-- family: compact_state

-- Messages and checkpoints are only ever found by their key. Kept in the tree of the key itself a row is written once,
-- where it had a row and an entry in an index. Cloudflare bills both. In a file that many sessions share it is the other
-- way round: rows that follow each other lie on the same page, whichever session they belong to.
DROP VIEW __agents_history;

ALTER TABLE __agents_messages RENAME TO __agents_messages_before;

CREATE TABLE __agents_messages (
  session_id TEXT NOT NULL,
  sequence BIGINT NOT NULL,
  message TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (session_id, sequence)
) WITHOUT ROWID;

INSERT INTO __agents_messages (session_id, sequence, message, created_at)
  SELECT session_id, sequence, message, created_at FROM __agents_messages_before ORDER BY session_id, sequence;

DROP TABLE __agents_messages_before;

DROP INDEX __agents_checkpoints_by_time;

ALTER TABLE __agents_checkpoints RENAME TO __agents_checkpoints_before;

CREATE TABLE __agents_checkpoints (
  session_id TEXT NOT NULL,
  number BIGINT NOT NULL,
  checkpoint_id TEXT NOT NULL,
  step_id TEXT NOT NULL,
  step_count BIGINT NOT NULL,
  stream_sequence BIGINT NOT NULL,
  message_count BIGINT NOT NULL,
  status TEXT NOT NULL,
  version BIGINT NOT NULL,
  state TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  overwritten TEXT,
  kind TEXT NOT NULL DEFAULT 'step',
  PRIMARY KEY (session_id, number)
) WITHOUT ROWID;

INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence, message_count,
    status, version, state, created_at, overwritten, kind)
  SELECT session_id, number, checkpoint_id, step_id, step_count, stream_sequence, message_count, status, version, state,
    created_at, overwritten, kind
  FROM __agents_checkpoints_before ORDER BY session_id, number;

DROP TABLE __agents_checkpoints_before;

CREATE INDEX __agents_checkpoints_by_time ON __agents_checkpoints (created_at, session_id);

-- All that was overwritten: checkpoint n has seen what is here with since < n < number.
CREATE VIEW __agents_history AS
SELECT session_id, number, key, slot, value, since FROM __agents_past
UNION ALL
SELECT p.session_id, p.number, json_extract(j.value, '$[0]') AS key, json_extract(j.value, '$[1]') AS slot,
  json_extract(j.value, '$[2]') AS value, json_extract(j.value, '$[3]') AS since
FROM __agents_checkpoints AS p, json_each(p.overwritten) AS j;
