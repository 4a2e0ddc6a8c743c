-- family: usage

-- What sessions spend. A row is one entry; columns of other kinds are NULL. `name` is the model, the tool, the type of
-- the sub-agent or the custom name. A custom amount is either whole or not, so that whole ones add up exactly.
CREATE TABLE __agents_usage (
    session_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C",
    step_count BIGINT,
    source TEXT COLLATE "C",
    timestamp BIGINT NOT NULL,
    parent_session_id TEXT COLLATE "C",
    sub_session_id TEXT COLLATE "C",
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
    parent_session_id TEXT COLLATE "C" NOT NULL,
    sub_session_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (parent_session_id, sub_session_id)
);

CREATE INDEX __agents_usage_links_by_sub ON __agents_usage_links (sub_session_id);

-- family: memory

-- What agents remember. `content`, `metadata` and `embedding` are for giving back, `words` is what search looks at.
-- `scope` is a short mark of the entity that stands before each of its words in `search`: so a search meets that
-- entity's memories only, however common the word is elsewhere. The words come ready-made, hence no text search
-- configuration.
CREATE TABLE __agents_memories (
    entity_id TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    content TEXT NOT NULL,
    metadata TEXT NOT NULL,
    embedding TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    scope TEXT COLLATE "C" NOT NULL,
    words TEXT NOT NULL,
    search tsvector NOT NULL GENERATED ALWAYS AS (
        array_to_tsvector(string_to_array(scope || replace(words, ' ', ' ' || scope), ' '))
    ) STORED,
    PRIMARY KEY (entity_id, id)
);

CREATE INDEX __agents_memories_by_age ON __agents_memories (entity_id, updated_at, id);

CREATE INDEX __agents_memories_by_source ON __agents_memories (entity_id, source, updated_at);

CREATE INDEX __agents_memories_by_word ON __agents_memories USING gin (search);
