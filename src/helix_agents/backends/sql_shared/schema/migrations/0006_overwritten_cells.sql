-- family: state

-- What a commit overwrites of custom state is kept for earlier checkpoints in the row of its own checkpoint, which is
-- written anyway: [[key, slot, text, born], ...]. A row for each would have its place in a tree and in an index.
ALTER TABLE __agents_checkpoints ADD COLUMN overwritten TEXT;

-- The same as rows: what cells held until the checkpoint of that number.
CREATE VIEW __agents_overwritten AS
SELECT p.session_id, p.number, json_extract(j.value, '$[0]') AS key, json_extract(j.value, '$[1]') AS slot,
  json_extract(j.value, '$[2]') AS value, json_extract(j.value, '$[3]') AS born
FROM __agents_checkpoints AS p, json_each(p.overwritten) AS j;
