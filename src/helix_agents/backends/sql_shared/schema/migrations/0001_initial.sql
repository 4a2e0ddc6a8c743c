-- The state store: sessions, their messages, custom state, staged writes, checkpoints, runs, refs and flags.
-- Numbers are BIGINT because Postgres means 32 bits by INTEGER; JSON is TEXT so that every byte round-trips.

-- family: every

-- No row ever fits in here: inserting a reason is how a batch undoes itself, and the CHECK's name says why.
CREATE TABLE __agents_guard (
  reason TEXT NOT NULL,
  CONSTRAINT guard_missing CHECK (reason <> 'missing'),
  CONSTRAINT guard_exists CHECK (reason <> 'exists'),
  CONSTRAINT guard_version CHECK (reason <> 'version'),
  CONSTRAINT guard_staged CHECK (reason <> 'staged'),
  CONSTRAINT guard_cells CHECK (reason <> 'cells'),
  CONSTRAINT guard_run CHECK (reason <> 'run'),
  CONSTRAINT guard_checkpoint CHECK (reason <> 'checkpoint'),
  CONSTRAINT guard_stream CHECK (reason <> 'stream'),
  CONSTRAINT guard_producer CHECK (reason <> 'producer'),
  CONSTRAINT guard_other CHECK (reason = '')
);

-- family: state

-- One row per session. suspension_context packs suspended_awaiting_children, suspended_step_id,
-- client_tool_call_ownership and tracing_context.
CREATE TABLE __agents_states (
  session_id TEXT PRIMARY KEY,
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
  user_id TEXT,
  tags TEXT NOT NULL DEFAULT '[]',
  metadata TEXT NOT NULL DEFAULT '{}',
  version BIGINT NOT NULL DEFAULT 1,
  resume_count BIGINT NOT NULL DEFAULT 0,
  message_count BIGINT NOT NULL DEFAULT 0,
  checkpoint_count BIGINT NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX __agents_states_by_age ON __agents_states (created_at, session_id);
CREATE INDEX __agents_states_by_user ON __agents_states (user_id, created_at, session_id) WHERE user_id IS NOT NULL;
CREATE INDEX __agents_states_by_agent ON __agents_states (agent_type, created_at, session_id);
CREATE INDEX __agents_states_by_status ON __agents_states (status, created_at, session_id);
CREATE INDEX __agents_states_by_parent ON __agents_states (parent_session_id, created_at, session_id);
CREATE INDEX __agents_states_by_expiry ON __agents_states (expires_at) WHERE expires_at IS NOT NULL;

-- Tags and metadata members by their text, so that a listing by a rare one does not read all sessions.
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
);

-- Custom state in cells. slot '' is a top-level key itself: its JSON, or '[' or '{' when it holds a list or an object,
-- whose items are slots '#0000000000', ... and whose members are slots '.name'. A cell was there from the checkpoint
-- count `born` on, until `died` (NULL: still is), so a commit costs what it wrote and any checkpoint can be read back.
CREATE TABLE __agents_custom_state (
  session_id TEXT NOT NULL,
  key TEXT NOT NULL,
  slot TEXT NOT NULL,
  value TEXT NOT NULL,
  born BIGINT NOT NULL,
  died BIGINT
);
CREATE UNIQUE INDEX __agents_custom_state_live ON __agents_custom_state (session_id, key, slot) WHERE died IS NULL;
CREATE INDEX __agents_custom_state_past ON __agents_custom_state (session_id, died) WHERE died IS NOT NULL;

CREATE TABLE __agents_staging (
  session_id TEXT NOT NULL,
  step_id TEXT NOT NULL,
  tool_call_id TEXT NOT NULL,
  position BIGINT NOT NULL,
  writes TEXT NOT NULL,
  result TEXT NOT NULL,
  token TEXT NOT NULL,
  staged_at BIGINT NOT NULL,
  PRIMARY KEY (session_id, step_id, tool_call_id)
);

-- `number` counts the commits of a session; `state` holds the session's fields, custom state is in the cells.
CREATE TABLE __agents_checkpoints (
  session_id TEXT NOT NULL,
  number BIGINT NOT NULL,
  checkpoint_id TEXT NOT NULL,
  step_id TEXT NOT NULL,
  step_count BIGINT NOT NULL,
  stream_sequence BIGINT NOT NULL,
  message_count BIGINT NOT NULL,
  status TEXT NOT NULL,
  version BIGINT NOT NULL,
  state TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (session_id, number)
);
CREATE UNIQUE INDEX __agents_checkpoints_by_id ON __agents_checkpoints (checkpoint_id);

CREATE TABLE __agents_runs (
  run_id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL,
  turn BIGINT NOT NULL,
  status TEXT NOT NULL,
  step_count BIGINT NOT NULL DEFAULT 0,
  start_sequence BIGINT NOT NULL DEFAULT 0,
  started_at BIGINT NOT NULL,
  completed_at BIGINT,
  error TEXT,
  output TEXT,
  metadata TEXT NOT NULL DEFAULT '{}',
  lease_until BIGINT
);
CREATE UNIQUE INDEX __agents_runs_by_turn ON __agents_runs (session_id, turn);

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
  timestamp BIGINT NOT NULL
);
