-- Only additions: programs that do not know them go on working.

-- Events in the order in which they were sealed; each hash is keyed and covers the one before it.
CREATE TABLE audit_chain (
  organisation_id BYTEA NOT NULL,
  position BIGINT NOT NULL,
  event_id BYTEA NOT NULL,
  hash BYTEA NOT NULL,
  PRIMARY KEY (organisation_id, position)
) /*rowid*/;
CREATE UNIQUE INDEX audit_chain_by_event ON audit_chain (event_id);
CREATE INDEX events_unsealed ON events (organisation_id, id) WHERE chain IS NULL;
