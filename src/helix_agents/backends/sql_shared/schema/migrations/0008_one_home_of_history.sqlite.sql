-- family: state

-- Cells hold the present only: a cell is there `since` so many checkpoints. Kept in the tree of the key itself, a cell is
-- one entry to find and one to write, where it had a row and an entry in an index.
-- What a commit overwrites is kept for the checkpoints that have seen it, once: in `overwritten` of the checkpoint that the
-- commit makes, or in `__agents_past` if it makes none. `number` is that of the first checkpoint that no longer saw it.
ALTER TABLE __agents_custom_state RENAME TO __agents_custom_state_before;

CREATE TABLE __agents_custom_state (
  session_id TEXT NOT NULL,
  key TEXT NOT NULL,
  slot TEXT NOT NULL,
  value TEXT NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (session_id, key, slot)
) WITHOUT ROWID;

CREATE TABLE __agents_past (
  session_id TEXT NOT NULL,
  number BIGINT NOT NULL,
  key TEXT NOT NULL,
  slot TEXT NOT NULL,
  value TEXT NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (session_id, number, key, slot)
) WITHOUT ROWID;

INSERT INTO __agents_custom_state (session_id, key, slot, value, since)
  SELECT session_id, key, slot, value, born FROM __agents_custom_state_before WHERE died IS NULL
  ORDER BY session_id, key, slot;

INSERT INTO __agents_past (session_id, number, key, slot, value, since)
  SELECT session_id, died + 1, key, slot, value, born FROM __agents_custom_state_before WHERE born < died;

DROP TABLE __agents_custom_state_before;

DROP VIEW __agents_overwritten;

-- All that was overwritten: checkpoint n has seen what is here with since < n < number.
CREATE VIEW __agents_history AS
SELECT session_id, number, key, slot, value, since FROM __agents_past
UNION ALL
SELECT p.session_id, p.number, json_extract(j.value, '$[0]') AS key, json_extract(j.value, '$[1]') AS slot,
  json_extract(j.value, '$[2]') AS value, json_extract(j.value, '$[3]') AS since
FROM __agents_checkpoints AS p, json_each(p.overwritten) AS j;
