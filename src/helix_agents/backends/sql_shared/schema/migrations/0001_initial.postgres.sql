-- The state store: sessions, their messages, custom state, staged writes, checkpoints, runs, refs and flags.
-- JSON is TEXT so that every byte round-trips (JSONB rejects NUL and lone surrogates). Columns that are compared or sorted are
-- COLLATE "C": the order of code points, the same on every server and in Python, and the cheapest to compare.

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
  CONSTRAINT guard_other CHECK (reason IN (
    'missing', 'exists', 'version', 'epoch', 'identity', 'staged', 'cells', 'run', 'lease', 'checkpoint', 'stream', 'producer'))
);

-- family: state

-- One row per session. `incarnation` distinguishes it from an earlier session with the same id. suspension_context packs suspended_awaiting_children, suspended_step_id,
-- client_tool_call_ownership and tracing_context. Pages have free space, so that a rewritten row stays on its page
-- and needs no new index entries.
CREATE TABLE __agents_states (
  session_id TEXT COLLATE "C" PRIMARY KEY,
  incarnation TEXT COLLATE "C" NOT NULL,
  agent_type TEXT COLLATE "C" NOT NULL,
  stream_id TEXT COLLATE "C" NOT NULL,
  parent_session_id TEXT COLLATE "C",
  root_session_id TEXT COLLATE "C",
  step_count BIGINT NOT NULL DEFAULT 0,
  status TEXT COLLATE "C" NOT NULL DEFAULT 'active',
  output TEXT,
  error TEXT,
  failure_reason TEXT,
  pending_client_tool_calls TEXT,
  completed_client_tool_calls TEXT,
  suspension_context TEXT,
  interrupt_context TEXT,
  expires_at BIGINT,
  due_at BIGINT,
  user_id TEXT COLLATE "C",
  tags TEXT COLLATE "C" NOT NULL DEFAULT '[]',
  metadata TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  version BIGINT NOT NULL DEFAULT 1,
  resume_count BIGINT NOT NULL DEFAULT 0,
  owner_epoch BIGINT NOT NULL DEFAULT 0,
  message_count BIGINT NOT NULL DEFAULT 0,
  checkpoint_count BIGINT NOT NULL DEFAULT 0,
  forked_from TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
) WITH (fillfactor = 60);
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
  label TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL,
  session_id TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (label, created_at, session_id)
);
CREATE INDEX __agents_session_labels_by_session ON __agents_session_labels (session_id);

-- An index entry holds at most 2,704 bytes, but names and labels may be longer: indexes hold a short text in place of
-- a long one. Different texts have different short texts: chr(29) is in no other text that is indexed.
CREATE FUNCTION __agents_index_text(TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN octet_length($1) <= 600 THEN $1
    ELSE left($1, 64) || chr(29) || encode(sha256(replace($1, '\', '\\')::bytea), 'hex') END
$$;

-- chr(31) separates a metadata key from its text, as in listing queries.
CREATE FUNCTION __agents_label_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    DELETE FROM __agents_session_labels WHERE session_id = NEW.session_id;
  END IF;
  INSERT INTO __agents_session_labels (label, created_at, session_id)
    SELECT __agents_index_text('tag:' || value), NEW.created_at, NEW.session_id
    FROM json_array_elements_text(NEW.tags::json)
    UNION SELECT __agents_index_text('meta:' || key || chr(31) || value), NEW.created_at, NEW.session_id
    FROM json_each_text(NEW.metadata::json);
  RETURN NULL;
END $$;

CREATE TRIGGER __agents_label_new_session AFTER INSERT ON __agents_states FOR EACH ROW
  WHEN (NEW.tags <> '[]' OR NEW.metadata <> '{}') EXECUTE FUNCTION __agents_label_session();

CREATE TRIGGER __agents_label_changed_session AFTER UPDATE OF tags, metadata ON __agents_states FOR EACH ROW
  WHEN (NEW.tags <> OLD.tags OR NEW.metadata <> OLD.metadata) EXECUTE FUNCTION __agents_label_session();

CREATE TABLE __agents_messages (
  session_id TEXT COLLATE "C" NOT NULL,
  sequence BIGINT NOT NULL,
  message TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (session_id, sequence)
);

-- Custom state in cells. slot '' is a top-level key itself: its JSON, or '[' or '{' when it holds a list or an object,
-- whose items are slots '#0000000000', ... and whose members are slots '.name'. Cells hold current values only; `since` is
-- how many checkpoints the session had when the cell was written.
CREATE TABLE __agents_custom_state (
  session_id TEXT COLLATE "C" NOT NULL,
  key TEXT COLLATE "C" NOT NULL,
  slot TEXT COLLATE "C" NOT NULL,
  value TEXT NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (session_id, key, slot)
);

-- An overwritten cell is stored once, for the checkpoints that need it: in `overwritten` of the checkpoint that the commit
-- makes ([[key, slot, text, since], ...]), or here if it makes none. `number` is the first checkpoint without it.
CREATE TABLE __agents_past (
  session_id TEXT COLLATE "C" NOT NULL,
  number BIGINT NOT NULL,
  key TEXT COLLATE "C" NOT NULL,
  slot TEXT COLLATE "C" NOT NULL,
  value TEXT NOT NULL,
  since BIGINT NOT NULL,
  PRIMARY KEY (session_id, number, key, slot)
);

-- Cells, current and overwritten, hold a short text in place of a long key or member; this table has the name.
CREATE TABLE __agents_long_names (
  session_id TEXT COLLATE "C" NOT NULL REFERENCES __agents_states ON DELETE CASCADE,
  place TEXT COLLATE "C" NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (session_id, place)
);

-- Without a primary key: three ids of full length do not fit into an index entry. Writers lock the row of the session
-- first, so that no two of them stage the same call concurrently.
CREATE TABLE __agents_staging (
  session_id TEXT COLLATE "C" NOT NULL,
  step_id TEXT COLLATE "C" NOT NULL,
  kind TEXT COLLATE "C" NOT NULL,
  tool_call_id TEXT COLLATE "C" NOT NULL,
  position BIGINT NOT NULL,
  writes TEXT NOT NULL,
  result TEXT NOT NULL,
  token TEXT COLLATE "C" NOT NULL,
  staged_at BIGINT NOT NULL
);
CREATE INDEX __agents_staging_by_step ON __agents_staging (session_id, step_id);

-- `number` counts the commits of a session; `state` holds the session's fields, custom state is in the cells.
CREATE TABLE __agents_checkpoints (
  session_id TEXT COLLATE "C" NOT NULL,
  number BIGINT NOT NULL,
  checkpoint_id TEXT COLLATE "C" NOT NULL,
  step_id TEXT COLLATE "C" NOT NULL,
  step_count BIGINT NOT NULL,
  stream_sequence BIGINT NOT NULL,
  kind TEXT COLLATE "C" NOT NULL DEFAULT 'step',
  message_count BIGINT NOT NULL,
  status TEXT COLLATE "C" NOT NULL,
  version BIGINT NOT NULL,
  state TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  overwritten TEXT,
  PRIMARY KEY (session_id, number)
);
CREATE UNIQUE INDEX __agents_checkpoints_by_id ON __agents_checkpoints (checkpoint_id, session_id);

-- All overwritten cells: those with since < n < number belong to checkpoint n.
CREATE VIEW __agents_history AS
SELECT session_id, number, key, slot, value, since FROM __agents_past
UNION ALL
SELECT p.session_id, p.number, j.cell->>0 AS key, j.cell->>1 AS slot, j.cell->>2 AS value,
  (j.cell->>3)::bigint AS since
FROM __agents_checkpoints AS p, json_array_elements(p.overwritten::json) AS j (cell);

-- Branches of conversations. The shelved rows of a branch are in the tables above, with `shelf` as their session.
-- `about` is read by the library only; `state` holds the session's fields when the branch was left.
CREATE TABLE __agents_branches (
  session_id TEXT COLLATE "C" NOT NULL,
  branch_id TEXT COLLATE "C" NOT NULL,
  shelf TEXT COLLATE "C" NOT NULL UNIQUE,
  about TEXT NOT NULL,
  state TEXT,
  PRIMARY KEY (session_id, branch_id)
);

-- `position` counts the runs of a session; several may belong to one turn. `details` is what only the executor reads.
CREATE TABLE __agents_runs (
  run_id TEXT COLLATE "C" PRIMARY KEY,
  session_id TEXT COLLATE "C" NOT NULL,
  position BIGINT NOT NULL,
  turn BIGINT NOT NULL,
  status TEXT COLLATE "C" NOT NULL,
  step_count BIGINT NOT NULL DEFAULT 0,
  start_sequence BIGINT NOT NULL DEFAULT 0,
  started_at BIGINT NOT NULL,
  completed_at BIGINT,
  error TEXT,
  output TEXT,
  metadata TEXT COLLATE "C" NOT NULL DEFAULT '{}',
  lease_until BIGINT,
  details TEXT NOT NULL DEFAULT '{}'
);
CREATE UNIQUE INDEX __agents_runs_in_order ON __agents_runs (session_id, position);

-- Open runs by lease, to find those without a worker.
CREATE INDEX __agents_runs_running ON __agents_runs ((COALESCE(lease_until, 0)), started_at, session_id)
  WHERE status = 'running';

CREATE TABLE __agents_sub_session_refs (
  session_id TEXT COLLATE "C" NOT NULL,
  sub_session_id TEXT COLLATE "C" NOT NULL,
  position BIGINT NOT NULL,
  agent_type TEXT COLLATE "C" NOT NULL,
  parent_tool_call_id TEXT COLLATE "C" NOT NULL,
  status TEXT COLLATE "C" NOT NULL DEFAULT 'active',
  remote_json TEXT,
  mode TEXT COLLATE "C" NOT NULL DEFAULT 'ephemeral',
  name TEXT COLLATE "C",
  started_at BIGINT NOT NULL,
  completed_at BIGINT,
  PRIMARY KEY (session_id, sub_session_id)
);
CREATE INDEX __agents_sub_session_refs_by_child ON __agents_sub_session_refs (sub_session_id);

CREATE TABLE __agents_interrupt_flags (
  session_id TEXT COLLATE "C" PRIMARY KEY,
  reason TEXT,
  run_id TEXT COLLATE "C",
  timestamp BIGINT NOT NULL,
  abort BIGINT NOT NULL DEFAULT 0
);

-- Remove every trace of a session and its descendants; return how many sessions were removed. Their rows are locked
-- first: a writer is done by then or finds nothing. New children may appear while it waits for a lock, so repeat until
-- there are no more. With `born` and `epoch` (NULL: any) only if the session has that incarnation and owner epoch.
CREATE FUNCTION __agents_delete_tree(root TEXT, born TEXT, epoch BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$
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
  INSERT INTO __agents_guard (reason)
    SELECT CASE WHEN s.incarnation <> born THEN 'missing' ELSE 'epoch' END FROM __agents_states AS s
    WHERE s.session_id = root AND (s.incarnation <> born OR s.owner_epoch <> epoch);
  DELETE FROM __agents_sub_session_refs WHERE sub_session_id = ANY (doomed) AND remote_json IS NULL;
  doomed := doomed || ARRAY(SELECT b.shelf FROM __agents_branches AS b WHERE b.session_id = ANY (doomed));
  DELETE FROM __agents_messages WHERE session_id = ANY (doomed);
  DELETE FROM __agents_custom_state WHERE session_id = ANY (doomed);
  DELETE FROM __agents_past WHERE session_id = ANY (doomed);
  DELETE FROM __agents_staging WHERE session_id = ANY (doomed);
  DELETE FROM __agents_checkpoints WHERE session_id = ANY (doomed);
  DELETE FROM __agents_runs WHERE session_id = ANY (doomed);
  DELETE FROM __agents_sub_session_refs WHERE session_id = ANY (doomed);
  DELETE FROM __agents_interrupt_flags WHERE session_id = ANY (doomed);
  DELETE FROM __agents_session_labels WHERE session_id = ANY (doomed);
  DELETE FROM __agents_branches WHERE session_id = ANY (doomed);
  DELETE FROM __agents_states WHERE session_id = ANY (doomed);
  RETURN taken;
END $$;

-- family: streams

-- Streams: one row per stream with its sequence counter, its chunks, and the position of each producer.
-- Chunks up to `floor` are dropped; rows up to `trimmed_to` have been deleted.
-- `fence` only grows: calls of an owner with a smaller one are rejected.
CREATE TABLE __agents_streams (
  stream_id TEXT COLLATE "C" PRIMARY KEY,
  incarnation TEXT COLLATE "C" NOT NULL,
  status TEXT COLLATE "C" NOT NULL DEFAULT 'active',
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

CREATE TABLE __agents_stream_chunks (
  stream_id TEXT COLLATE "C" NOT NULL,
  sequence BIGINT NOT NULL,
  step BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  chunk TEXT NOT NULL,
  PRIMARY KEY (stream_id, sequence)
);

CREATE TABLE __agents_stream_producers (
  stream_id TEXT COLLATE "C" NOT NULL,
  producer_id TEXT COLLATE "C" NOT NULL,
  counter BIGINT NOT NULL,
  sequence BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (stream_id, producer_id)
);

-- family: usage

-- Usage of sessions. A row is one entry; columns of other kinds are NULL. `name` is the model, the tool, the type of
-- the sub-agent or the custom name. A custom amount is stored as an integer if it is one, so that integers add up exactly.
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
    cache_written BIGINT,
    total BIGINT,
    duration_ms BIGINT,
    success BIGINT,
    amount_whole BIGINT,
    amount_real DOUBLE PRECISION,
    incarnation TEXT COLLATE "C",
    PRIMARY KEY (session_id, id)
);

CREATE INDEX __agents_usage_by_time ON __agents_usage (timestamp, session_id, id);

CREATE INDEX __agents_usage_by_run ON __agents_usage (run_id, timestamp) WHERE run_id IS NOT NULL;

-- Parents and children among sessions, as recorded by entries.
CREATE TABLE __agents_usage_links (
    parent_session_id TEXT COLLATE "C" NOT NULL,
    sub_session_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (parent_session_id, sub_session_id)
);

CREATE INDEX __agents_usage_links_by_sub ON __agents_usage_links (sub_session_id);

-- family: memory

-- The memories of agents. `content`, `metadata` and `embedding` are returned, `words` is searched.
-- `scope` is a short mark of the entity that precedes each of its words in `search`: so a search reads that
-- entity's memories only, however common the word is elsewhere. The words are already normalized, hence no text search
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

-- family: blobs

-- Bytes beside conversations, by their digest. A blob becomes visible when its head is written, which happens last.
CREATE TABLE __agents_blobs (
    space TEXT COLLATE "C" NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    size BIGINT NOT NULL,
    media_type TEXT NOT NULL,
    stored_at BIGINT NOT NULL,
    PRIMARY KEY (space, digest)
);

-- The bytes of blobs, as base64. Already dense: compressing it again would only cost time.
CREATE TABLE __agents_blob_pieces (
    space TEXT COLLATE "C" NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (space, digest, number)
);

ALTER TABLE __agents_blob_pieces ALTER COLUMN data SET STORAGE EXTERNAL;
