-- family: state

-- A checkpoint is found by the time that its id tells and by its session. Times only grow, so the commits of all sessions
-- write to the same page of this index; ids are scattered, and each had a page of its own to write.
DROP INDEX __agents_checkpoints_by_id;
CREATE INDEX __agents_checkpoints_by_time ON __agents_checkpoints (created_at, session_id);
