-- family: state

-- What a commit overwrites of custom state is kept for earlier checkpoints in the row of its own checkpoint, which is
-- written anyway: [[key, slot, text, born], ...]. A row for each would have its place in a tree and in an index.
ALTER TABLE __agents_checkpoints ADD COLUMN overwritten TEXT;

-- The same as rows: what cells held until the checkpoint of that number.
CREATE VIEW __agents_overwritten AS
SELECT p.session_id, p.number, j.cell->>0 AS key, j.cell->>1 AS slot, j.cell->>2 AS value, (j.cell->>3)::bigint AS born
FROM __agents_checkpoints AS p, json_array_elements(p.overwritten::json) AS j (cell);
