-- What a commit overwrites of custom state is kept for earlier checkpoints in the row of its own checkpoint, which is
-- written anyway: [[key, slot, text, born], ...]. A row for each would have its place in a tree and in an index.
ALTER TABLE __agents_checkpoints ADD COLUMN overwritten TEXT;
