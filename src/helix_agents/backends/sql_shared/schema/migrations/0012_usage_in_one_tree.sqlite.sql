-- family: compact_usage

-- Entries in the tree of their key: one row less to write for each, where rows are billed.
DROP INDEX __agents_usage_by_time;

DROP INDEX __agents_usage_by_run;

ALTER TABLE __agents_usage RENAME TO __agents_usage_before;

CREATE TABLE __agents_usage (
    session_id TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    run_id TEXT,
    step_count BIGINT,
    source TEXT,
    timestamp BIGINT NOT NULL,
    parent_session_id TEXT,
    sub_session_id TEXT,
    prompt BIGINT,
    completion BIGINT,
    reasoning BIGINT,
    cached BIGINT,
    total BIGINT,
    duration_ms BIGINT,
    success BIGINT,
    amount_whole BIGINT,
    amount_real DOUBLE PRECISION,
    PRIMARY KEY (session_id, id)
) WITHOUT ROWID;

INSERT INTO __agents_usage SELECT * FROM __agents_usage_before;

DROP TABLE __agents_usage_before;

CREATE INDEX __agents_usage_by_time ON __agents_usage (timestamp, session_id, id);

CREATE INDEX __agents_usage_by_run ON __agents_usage (run_id, timestamp) WHERE run_id IS NOT NULL;
