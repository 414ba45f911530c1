-- Alerts: one row each, moved by whichever server sees it first.
CREATE TABLE alerts (
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  name TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('ok', 'firing')),
  -- Since when it has this status.
  since BIGINT NOT NULL,
  -- When any server last saw that it holds.
  seen_at BIGINT NOT NULL,
  -- Whether somebody was told that it fires.
  told BIGINT NOT NULL,
  -- What was seen: a message, a value, a threshold.
  document TEXT NOT NULL,
  silenced_until BIGINT,
  silenced_by TEXT,
  PRIMARY KEY (organisation_id, name)
) /*rowid*/;

-- What is still to be told, oldest first; at most a few.
CREATE TABLE alert_notices (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  document TEXT NOT NULL,
  attempts BIGINT NOT NULL,
  -- Not before this time; whoever tries it sets it ahead.
  next_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL
) /*rowid*/;

-- Its lease was taken away and it was not heard of since.
ALTER TABLE workers ADD COLUMN lost_at BIGINT;
-- It said that it would not ask again.
ALTER TABLE workers ADD COLUMN left_at BIGINT;

-- Lines of changes that are over, packed and sealed outside the database; they come before those in chunks.
CREATE TABLE log_objects (
  change_id BYTEA NOT NULL REFERENCES changes (id),
  first_seq BIGINT NOT NULL,
  last_seq BIGINT NOT NULL,
  organisation_id BYTEA NOT NULL,
  address TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (change_id, first_seq)
) /*rowid*/;

-- The request that asked for it, as `traceparent`: what is done for it belongs to the same trace.
ALTER TABLE changes ADD COLUMN trace TEXT;

CREATE INDEX changes_ended ON changes (completed_at) WHERE completed_at IS NOT NULL;
