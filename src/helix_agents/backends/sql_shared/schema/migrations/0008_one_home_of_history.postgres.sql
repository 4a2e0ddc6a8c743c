-- family: state

-- Cells hold the present only: a cell is there `since` so many checkpoints.
-- What a commit overwrites is kept for the checkpoints that have seen it, once: in `overwritten` of the checkpoint that the
-- commit makes, or in `__agents_past` if it makes none. `number` is that of the first checkpoint that no longer saw it.
CREATE TABLE __agents_past (
  session_id TEXT COLLATE "C" NOT NULL,
  number BIGINT NOT NULL,
  key TEXT COLLATE "C" NOT NULL,
  slot TEXT COLLATE "C" NOT NULL,
  value TEXT NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (session_id, number, key, slot)
);

INSERT INTO __agents_past (session_id, number, key, slot, value, since)
  SELECT session_id, died + 1, key, slot, value, born FROM __agents_custom_state WHERE born < died;

DELETE FROM __agents_custom_state WHERE died IS NOT NULL;

DROP INDEX __agents_custom_state_live;

DROP INDEX __agents_custom_state_past;

ALTER TABLE __agents_custom_state DROP COLUMN died;

ALTER TABLE __agents_custom_state RENAME COLUMN born TO since;

ALTER TABLE __agents_custom_state ADD PRIMARY KEY (session_id, key, slot);

DROP VIEW __agents_overwritten;

-- All that was overwritten: checkpoint n has seen what is here with since < n < number.
CREATE VIEW __agents_history AS
SELECT session_id, number, key, slot, value, since FROM __agents_past
UNION ALL
SELECT p.session_id, p.number, j.cell->>0 AS key, j.cell->>1 AS slot, j.cell->>2 AS value,
  (j.cell->>3)::bigint AS since
FROM __agents_checkpoints AS p, json_array_elements(p.overwritten::json) AS j (cell);

-- Remove every trace of a session and of all below it; answer how many sessions that were. Their rows are taken first:
-- a writer is done by then or finds nothing left. Who had to wait for a row may find children that came meanwhile, so
-- look again until there are no more.
CREATE OR REPLACE FUNCTION __agents_delete_tree(root TEXT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
  doomed TEXT[];
  taken BIGINT := -1;
BEGIN
  LOOP
    doomed := ARRAY(
      SELECT s.session_id FROM __agents_states AS s WHERE s.session_id IN (
        WITH RECURSIVE tree (session_id) AS (
          SELECT r.session_id FROM __agents_states AS r WHERE r.session_id = root
          UNION SELECT c.session_id FROM __agents_states AS c JOIN tree ON c.parent_session_id = tree.session_id)
        SELECT session_id FROM tree)
      ORDER BY s.session_id FOR UPDATE);
    EXIT WHEN cardinality(doomed) = taken;
    taken := cardinality(doomed);
  END LOOP;
  DELETE FROM __agents_sub_session_refs WHERE sub_session_id = ANY (doomed) AND remote_json IS NULL;
  DELETE FROM __agents_messages WHERE session_id = ANY (doomed);
  DELETE FROM __agents_custom_state WHERE session_id = ANY (doomed);
  DELETE FROM __agents_past WHERE session_id = ANY (doomed);
  DELETE FROM __agents_staging WHERE session_id = ANY (doomed);
  DELETE FROM __agents_checkpoints WHERE session_id = ANY (doomed);
  DELETE FROM __agents_runs WHERE session_id = ANY (doomed);
  DELETE FROM __agents_sub_session_refs WHERE session_id = ANY (doomed);
  DELETE FROM __agents_interrupt_flags WHERE session_id = ANY (doomed);
  DELETE FROM __agents_session_labels WHERE session_id = ANY (doomed);
  DELETE FROM __agents_states WHERE session_id = ANY (doomed);
  RETURN taken;
END $$;
