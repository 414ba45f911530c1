-- Only additions: programs that do not know them go on working.

-- Who owns an application: the names in its document.
CREATE TABLE application_owners (
  organisation_id BYTEA NOT NULL,
  name TEXT NOT NULL,
  application_id BYTEA NOT NULL REFERENCES applications (id),
  PRIMARY KEY (organisation_id, name, application_id)
) /*rowid*/;
CREATE INDEX application_owners_of ON application_owners (application_id);

-- Keyed, by the program that wrote the event: one that was put in by hand has none that fits.
ALTER TABLE events ADD COLUMN seal BYTEA;
