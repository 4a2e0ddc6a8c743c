-- The state store: sessions, their messages, custom state, staged writes, checkpoints, runs, refs and flags.
-- Numbers are BIGINT as on Postgres; JSON is TEXT so that every byte round-trips.
-- `{compact}` is WITHOUT ROWID where every row written is billed: a row is stored in its key's tree, without an entry in
-- an index. It is empty where many sessions share a file, because rows written together are on one page there.

-- family: every

-- Every insert fails: a batch undoes itself by inserting a reason, and the name of the CHECK says why.
CREATE TABLE __agents_guard (
  reason TEXT NOT NULL,
  CONSTRAINT guard_missing CHECK (reason <> 'missing'),
  CONSTRAINT guard_exists CHECK (reason <> 'exists'),
  CONSTRAINT guard_version CHECK (reason <> 'version'),
  CONSTRAINT guard_epoch CHECK (reason <> 'epoch'),
  CONSTRAINT guard_identity CHECK (reason <> 'identity'),
  CONSTRAINT guard_staged CHECK (reason <> 'staged'),
  CONSTRAINT guard_cells CHECK (reason <> 'cells'),
  CONSTRAINT guard_run CHECK (reason <> 'run'),
  CONSTRAINT guard_lease CHECK (reason <> 'lease'),
  CONSTRAINT guard_checkpoint CHECK (reason <> 'checkpoint'),
  CONSTRAINT guard_stream CHECK (reason <> 'stream'),
  CONSTRAINT guard_producer CHECK (reason <> 'producer'),
  CONSTRAINT guard_other CHECK (reason = '')
);

-- family: state

-- One row per session. `incarnation` distinguishes it from an earlier session with the same id. suspension_context packs suspended_awaiting_children, suspended_step_id,
-- client_tool_call_ownership and tracing_context.
CREATE TABLE __agents_states (
  session_id TEXT PRIMARY KEY,
  incarnation TEXT NOT NULL,
  agent_type TEXT NOT NULL,
  stream_id TEXT NOT NULL,
  parent_session_id TEXT,
  root_session_id TEXT,
  step_count BIGINT NOT NULL DEFAULT 0,
  status TEXT NOT NULL DEFAULT 'active',
  output TEXT,
  error TEXT,
  failure_reason TEXT,
  pending_client_tool_calls TEXT,
  completed_client_tool_calls TEXT,
  suspension_context TEXT,
  interrupt_context TEXT,
  expires_at BIGINT,
  due_at BIGINT,
  user_id TEXT,
  tags TEXT NOT NULL DEFAULT '[]',
  metadata TEXT NOT NULL DEFAULT '{}',
  version BIGINT NOT NULL DEFAULT 1,
  resume_count BIGINT NOT NULL DEFAULT 0,
  owner_epoch BIGINT NOT NULL DEFAULT 0,
  message_count BIGINT NOT NULL DEFAULT 0,
  checkpoint_count BIGINT NOT NULL DEFAULT 0,
  forked_from TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX __agents_states_by_age ON __agents_states (created_at, session_id);
CREATE INDEX __agents_states_by_user ON __agents_states (user_id, created_at, session_id) WHERE user_id IS NOT NULL;
CREATE INDEX __agents_states_by_agent ON __agents_states (agent_type, created_at, session_id);
CREATE INDEX __agents_states_by_status ON __agents_states (status, created_at, session_id);
CREATE INDEX __agents_states_by_parent ON __agents_states (parent_session_id, created_at, session_id);
CREATE INDEX __agents_states_by_expiry ON __agents_states (expires_at) WHERE expires_at IS NOT NULL;
-- When a worker can continue a session that waits.
CREATE INDEX __agents_states_by_due ON __agents_states (due_at, session_id) WHERE due_at IS NOT NULL;

-- Tags and metadata by text, so that a listing by a rare one does not read all sessions.
CREATE TABLE __agents_session_labels (
  label TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  session_id TEXT NOT NULL,
  PRIMARY KEY (label, created_at, session_id)
);
CREATE INDEX __agents_session_labels_by_session ON __agents_session_labels (session_id);

CREATE TRIGGER __agents_label_new_session AFTER INSERT ON __agents_states
  WHEN NEW.tags <> '[]' OR NEW.metadata <> '{}'
BEGIN
  INSERT INTO __agents_session_labels (label, created_at, session_id)
    SELECT 'tag:' || value, NEW.created_at, NEW.session_id FROM json_each(NEW.tags)
    UNION SELECT 'meta:' || key || char(31) || value, NEW.created_at, NEW.session_id FROM json_each(NEW.metadata);
END;

CREATE TRIGGER __agents_label_changed_session AFTER UPDATE OF tags, metadata ON __agents_states
  WHEN NEW.tags <> OLD.tags OR NEW.metadata <> OLD.metadata
BEGIN
  DELETE FROM __agents_session_labels WHERE session_id = NEW.session_id;
  INSERT INTO __agents_session_labels (label, created_at, session_id)
    SELECT 'tag:' || value, NEW.created_at, NEW.session_id FROM json_each(NEW.tags)
    UNION SELECT 'meta:' || key || char(31) || value, NEW.created_at, NEW.session_id FROM json_each(NEW.metadata);
END;

CREATE TABLE __agents_messages (
  session_id TEXT NOT NULL,
  sequence BIGINT NOT NULL,
  message TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (session_id, sequence)
) {compact};

-- Custom state in cells. slot '' is a top-level key itself: its JSON, or '[' or '{' when it holds a list or an object,
-- whose items are slots '#0000000000', ... and whose members are slots '.name'. Cells hold current values only; `since` is
-- how many checkpoints the session had when the cell was written.
CREATE TABLE __agents_custom_state (
  session_id TEXT NOT NULL,
  key TEXT NOT NULL,
  slot TEXT NOT NULL,
  value TEXT NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (session_id, key, slot)
) WITHOUT ROWID;

-- An overwritten cell is stored once, for the checkpoints that need it: in `overwritten` of the checkpoint that the commit
-- makes ([[key, slot, text, since], ...]), or here if it makes none. `number` is the first checkpoint without it.
CREATE TABLE __agents_past (
  session_id TEXT NOT NULL,
  number BIGINT NOT NULL,
  key TEXT NOT NULL,
  slot TEXT NOT NULL,
  value TEXT NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (session_id, number, key, slot)
) WITHOUT ROWID;

-- Rows exist for one step and are only looked up by key.
CREATE TABLE __agents_staging (
  session_id TEXT NOT NULL,
  step_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  tool_call_id TEXT NOT NULL,
  position BIGINT NOT NULL,
  writes TEXT NOT NULL,
  result TEXT NOT NULL,
  token TEXT NOT NULL,
  staged_at BIGINT NOT NULL,
  PRIMARY KEY (session_id, step_id, kind, tool_call_id)
) WITHOUT ROWID;

-- `number` counts the commits of a session; `state` holds the session's fields, custom state is in the cells.
-- A checkpoint is found by session and the time in its id: times only grow, so the commits of all sessions write to
-- the same page of the index, while ids are scattered.
CREATE TABLE __agents_checkpoints (
  session_id TEXT NOT NULL,
  number BIGINT NOT NULL,
  checkpoint_id TEXT NOT NULL,
  step_id TEXT NOT NULL,
  step_count BIGINT NOT NULL,
  stream_sequence BIGINT NOT NULL,
  kind TEXT NOT NULL DEFAULT 'step',
  message_count BIGINT NOT NULL,
  status TEXT NOT NULL,
  version BIGINT NOT NULL,
  state TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  overwritten TEXT,
  PRIMARY KEY (session_id, number)
) {compact};
CREATE INDEX __agents_checkpoints_by_time ON __agents_checkpoints (created_at, session_id);

-- All overwritten cells: those with since < n < number belong to checkpoint n.
CREATE VIEW __agents_history AS
SELECT session_id, number, key, slot, value, since FROM __agents_past
UNION ALL
SELECT p.session_id, p.number, json_extract(j.value, '$[0]') AS key, json_extract(j.value, '$[1]') AS slot,
  json_extract(j.value, '$[2]') AS value, json_extract(j.value, '$[3]') AS since
FROM __agents_checkpoints AS p, json_each(p.overwritten) AS j;

-- Branches of conversations. The shelved rows of a branch are in the tables above, with `shelf` as their session.
-- `about` is read by the library only; `state` holds the session's fields when the branch was left.
CREATE TABLE __agents_branches (
  session_id TEXT NOT NULL,
  branch_id TEXT NOT NULL,
  shelf TEXT NOT NULL UNIQUE,
  about TEXT NOT NULL,
  state TEXT,
  PRIMARY KEY (session_id, branch_id)
) {compact};

-- `position` counts the runs of a session; several may belong to one turn. `details` is what only the executor reads.
CREATE TABLE __agents_runs (
  run_id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL,
  position BIGINT NOT NULL,
  turn BIGINT NOT NULL,
  status TEXT NOT NULL,
  step_count BIGINT NOT NULL DEFAULT 0,
  start_sequence BIGINT NOT NULL DEFAULT 0,
  started_at BIGINT NOT NULL,
  completed_at BIGINT,
  error TEXT,
  output TEXT,
  metadata TEXT NOT NULL DEFAULT '{}',
  lease_until BIGINT,
  details TEXT NOT NULL DEFAULT '{}'
);
CREATE UNIQUE INDEX __agents_runs_in_order ON __agents_runs (session_id, position);

-- Open runs by lease, to find those without a worker.
CREATE INDEX __agents_runs_running ON __agents_runs ((COALESCE(lease_until, 0)), started_at, session_id)
  WHERE status = 'running';

CREATE TABLE __agents_sub_session_refs (
  session_id TEXT NOT NULL,
  sub_session_id TEXT NOT NULL,
  position BIGINT NOT NULL,
  agent_type TEXT NOT NULL,
  parent_tool_call_id TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'active',
  remote_json TEXT,
  mode TEXT NOT NULL DEFAULT 'ephemeral',
  name TEXT,
  started_at BIGINT NOT NULL,
  completed_at BIGINT,
  PRIMARY KEY (session_id, sub_session_id)
);
CREATE INDEX __agents_sub_session_refs_by_child ON __agents_sub_session_refs (sub_session_id);

CREATE TABLE __agents_interrupt_flags (
  session_id TEXT PRIMARY KEY,
  reason TEXT,
  run_id TEXT,
  timestamp BIGINT NOT NULL,
  abort BIGINT NOT NULL DEFAULT 0
);

-- family: streams

-- Streams: one row per stream with its sequence counter, its chunks, and the position of each producer.
-- Chunks up to `floor` are dropped; rows up to `trimmed_to` have been deleted.
-- `fence` only grows: calls of an owner with a smaller one are rejected.
CREATE TABLE __agents_streams (
  stream_id TEXT PRIMARY KEY,
  incarnation TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'active',
  revision BIGINT NOT NULL DEFAULT 0,
  latest_sequence BIGINT NOT NULL DEFAULT 0,
  fence BIGINT NOT NULL DEFAULT 0,
  floor BIGINT NOT NULL DEFAULT 0,
  trimmed_to BIGINT NOT NULL DEFAULT 0,
  total_chunks BIGINT NOT NULL DEFAULT 0,
  largest_chunk BIGINT NOT NULL DEFAULT 1,
  final_output TEXT,
  error TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

-- The chunks of one append are one row, a JSON array of their texts: on Cloudflare every row written is billed, and
-- elsewhere a row costs more than a chunk. They belong to one step and have consecutive sequences.
CREATE TABLE __agents_stream_segments (
  stream_id TEXT NOT NULL,
  first_sequence BIGINT NOT NULL,
  last_sequence BIGINT NOT NULL,
  step BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  chunks TEXT NOT NULL,
  PRIMARY KEY (stream_id, first_sequence)
) WITHOUT ROWID;

-- The same, one row per chunk, for people who inspect the database.
CREATE VIEW __agents_stream_chunks AS
SELECT g.stream_id, g.first_sequence + j.key AS sequence, g.step, g.created_at, j.value AS chunk
FROM __agents_stream_segments AS g, json_each(g.chunks) AS j;

CREATE TABLE __agents_stream_producers (
  stream_id TEXT NOT NULL,
  producer_id TEXT NOT NULL,
  counter BIGINT NOT NULL,
  sequence BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (stream_id, producer_id)
) WITHOUT ROWID;

-- family: usage

-- Usage of sessions. A row is one entry; columns of other kinds are NULL. `name` is the model, the tool, the type of
-- the sub-agent or the custom name. A custom amount is stored as an integer if it is one, so that integers add up exactly.
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
    cache_written BIGINT,
    total BIGINT,
    duration_ms BIGINT,
    success BIGINT,
    amount_whole BIGINT,
    amount_real DOUBLE PRECISION,
    incarnation TEXT,
    PRIMARY KEY (session_id, id)
) {compact};

CREATE INDEX __agents_usage_by_time ON __agents_usage (timestamp, session_id, id);

CREATE INDEX __agents_usage_by_run ON __agents_usage (run_id, timestamp) WHERE run_id IS NOT NULL;

-- Parents and children among sessions, as recorded by entries.
CREATE TABLE __agents_usage_links (
    parent_session_id TEXT NOT NULL,
    sub_session_id TEXT NOT NULL,
    PRIMARY KEY (parent_session_id, sub_session_id)
);

CREATE INDEX __agents_usage_links_by_sub ON __agents_usage_links (sub_session_id);

-- family: memory

-- The memories of agents. `content`, `metadata` and `embedding` are returned, `words` is searched.
-- `scope` is a short mark of the entity that precedes each of its words in the index.
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

-- The search index: no text, no positions, only which memory has which word. The words are already normalized, separated by
-- single spaces; the ascii tokenizer changes nothing else. Because each word carries its entity's scope, a
-- search reads that entity's memories only, however common the word is elsewhere.
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

-- family: blobs

-- Bytes beside conversations, by their digest. A blob becomes visible when its head is written, which happens last.
CREATE TABLE __agents_blobs (
    space TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    media_type TEXT NOT NULL,
    stored_at INTEGER NOT NULL,
    PRIMARY KEY (space, digest)
) WITHOUT ROWID;

-- The bytes of blobs, as base64.
CREATE TABLE __agents_blob_pieces (
    space TEXT NOT NULL,
    digest TEXT NOT NULL,
    number INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (space, digest, number)
);
