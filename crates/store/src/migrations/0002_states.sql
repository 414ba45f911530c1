-- Where a state's body is, by which operation or person it came, and states that belong to no resource.

-- The length of what was sealed; null for versions from before, whose body tells.
ALTER TABLE states ADD COLUMN size BIGINT;
-- The address of the sealed body in an object store; `body` is empty then.
ALTER TABLE states ADD COLUMN object TEXT;
ALTER TABLE states ADD COLUMN operation_id BYTEA;
-- Who, where no operation wrote it.
ALTER TABLE states ADD COLUMN actor TEXT;

-- Where the state of a resource is that is not kept here.
CREATE TABLE state_places (
  resource_id BYTEA PRIMARY KEY REFERENCES resources (id),
  organisation_id BYTEA NOT NULL,
  backend TEXT NOT NULL,
  location TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
) /*rowid*/;

-- States of people's own terraform, by a name of their choice.
CREATE TABLE workspaces (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  name TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  -- Written by every move, so that two of them wait for each other.
  updated_at BIGINT NOT NULL,
  UNIQUE (organisation_id, name)
) /*rowid*/;
CREATE TABLE workspace_states (
  workspace_id BYTEA NOT NULL REFERENCES workspaces (id),
  number BIGINT NOT NULL,
  organisation_id BYTEA NOT NULL,
  serial BIGINT NOT NULL,
  lineage TEXT NOT NULL,
  digest BYTEA NOT NULL,
  body BYTEA NOT NULL,
  fence BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  size BIGINT,
  object TEXT,
  operation_id BYTEA,
  actor TEXT,
  PRIMARY KEY (workspace_id, number)
);
CREATE TABLE workspace_locks (
  workspace_id BYTEA PRIMARY KEY REFERENCES workspaces (id),
  lock_id TEXT NOT NULL,
  -- Always 0: nobody's claim runs out.
  fence BIGINT NOT NULL,
  document TEXT NOT NULL,
  actor TEXT NOT NULL,
  created_at BIGINT NOT NULL
) /*rowid*/;

-- To tell which bodies in an object store nobody refers to.
CREATE INDEX states_by_object ON states (object) WHERE object IS NOT NULL;
CREATE INDEX workspace_states_by_object ON workspace_states (object) WHERE object IS NOT NULL;
