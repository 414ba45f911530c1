-- How operations reach what lies outside: credentials, sealed, and the keys by which this server vouches for them.

CREATE TABLE integrations (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  name TEXT NOT NULL,
  provider TEXT NOT NULL,
  -- Null: for the whole organisation.
  environment_id BYTEA REFERENCES environments (id),
  -- The environment's name, or nothing: a name is there once per environment and once for all.
  place TEXT NOT NULL,
  -- Everything but values; those are one sealed leaf in it.
  document TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (organisation_id, name, place)
) /*rowid*/;

-- Keys that sign identity tokens: told to the world before they are used, and for as long as what they signed lives.
CREATE TABLE signing_keys (
  id TEXT PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  secret BYTEA NOT NULL,
  public TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  used_from BIGINT NOT NULL
) /*rowid*/;
