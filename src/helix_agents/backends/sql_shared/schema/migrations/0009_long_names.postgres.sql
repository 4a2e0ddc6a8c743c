-- family: state

-- An entry of an index holds at most 2,704 bytes, names and labels may be longer: indexes hold a short text that stands
-- for the long one. No two that stand for different texts are equal: chr(29) is in no other text that is indexed.
CREATE FUNCTION __agents_index_text(TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN octet_length($1) <= 600 THEN $1
    ELSE left($1, 64) || chr(29) || encode(sha256(replace($1, '\', '\\')::bytea), 'hex') END
$$;

CREATE OR REPLACE FUNCTION __agents_label_session() RETURNS trigger LANGUAGE plpgsql AS $$
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
UPDATE __agents_session_labels SET label = __agents_index_text(label) WHERE octet_length(label) > 600;

-- Three ids of full length are too long together. Writers take the row of the session first, so that no two of them
-- ever stage the same call at once.
ALTER TABLE __agents_staging DROP CONSTRAINT __agents_staging_pkey;
CREATE INDEX __agents_staging_by_step ON __agents_staging (session_id, step_id);

-- Keys and members of custom state: cells, and what was overwritten of them, hold what stands for a long name.
CREATE TABLE __agents_long_names (
  session_id TEXT COLLATE "C" NOT NULL REFERENCES __agents_states ON DELETE CASCADE,
  place TEXT COLLATE "C" NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (session_id, place)
);
