-- family: usage

-- What sessions spend. A row is one entry; columns of other kinds are NULL. `name` is the model, the tool, the type of
-- the sub-agent or the custom name. A custom amount is either whole or not, so that whole ones add up exactly.
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
);

CREATE INDEX __agents_usage_by_time ON __agents_usage (timestamp, session_id, id);

CREATE INDEX __agents_usage_by_run ON __agents_usage (run_id, timestamp) WHERE run_id IS NOT NULL;

-- Which session lies directly below which, as entries have told.
CREATE TABLE __agents_usage_links (
    parent_session_id TEXT NOT NULL,
    sub_session_id TEXT NOT NULL,
    PRIMARY KEY (parent_session_id, sub_session_id)
);

CREATE INDEX __agents_usage_links_by_sub ON __agents_usage_links (sub_session_id);

-- family: memory

-- What agents remember. `content`, `metadata` and `embedding` are for giving back, `words` is what search looks at.
-- `scope` is a short mark of the entity that stands before each of its words in the index.
CREATE TABLE __agents_memories (
    memory_number INTEGER PRIMARY KEY,
    entity_id TEXT NOT NULL,
    id TEXT NOT NULL,
    source TEXT NOT NULL,
    content TEXT NOT NULL,
    metadata TEXT NOT NULL,
    embedding TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    scope TEXT NOT NULL,
    words TEXT NOT NULL,
    UNIQUE (entity_id, id)
);

CREATE INDEX __agents_memories_by_age ON __agents_memories (entity_id, updated_at, id);

CREATE INDEX __agents_memories_by_source ON __agents_memories (entity_id, source, updated_at);

-- The search index: no text, no positions, only which memory has which word. The words come ready-made, separated by
-- single blanks; the ascii tokenizer leaves everything else as it is. Because each word carries its entity's scope, a
-- search meets that entity's memories only, however common the word is elsewhere.
CREATE VIRTUAL TABLE __agents_memories_index
USING fts5(words, content='', detail='none', columnsize=0, tokenize='ascii');

CREATE TRIGGER __agents_memories_added AFTER INSERT ON __agents_memories BEGIN
    INSERT INTO __agents_memories_index (rowid, words)
    VALUES (new.memory_number, new.scope || replace(new.words, ' ', ' ' || new.scope));
END;

CREATE TRIGGER __agents_memories_removed AFTER DELETE ON __agents_memories BEGIN
    INSERT INTO __agents_memories_index (__agents_memories_index, rowid, words)
    VALUES ('delete', old.memory_number, old.scope || replace(old.words, ' ', ' ' || old.scope));
END;

CREATE TRIGGER __agents_memories_changed AFTER UPDATE OF words ON __agents_memories BEGIN
    INSERT INTO __agents_memories_index (__agents_memories_index, rowid, words)
    VALUES ('delete', old.memory_number, old.scope || replace(old.words, ' ', ' ' || old.scope));
    INSERT INTO __agents_memories_index (rowid, words)
    VALUES (new.memory_number, new.scope || replace(new.words, ' ', ' ' || new.scope));
END;
