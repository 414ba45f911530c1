-- One text for both databases. SQLite reads BYTEA as BLOB; /*rowid*/ and /*busy*/ become WITHOUT ROWID there, and
-- on PostgreSQL /*busy*/ leaves room in the pages of rows that are written again and again.
-- Allowed moves of a state stand in CHECKs, written from the same constants as the types: /*state moves*/ and so on.
-- Rows written all the time do not refer to their organisation: every such write would lock that one row.
-- Ids are 16 bytes, times are microseconds since 1970, JSON is opaque text.

CREATE TABLE meta (key TEXT PRIMARY KEY, value BYTEA NOT NULL) /*rowid*/;

-- Whoever plans holds the row of every domain the plan touches: wide to narrow.
CREATE TABLE domains (
  id BYTEA PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('global', 'organisation', 'environment')),
  organisation_id BYTEA
) /*rowid*/;

CREATE TABLE organisations (
  id BYTEA PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  domain_id BYTEA NOT NULL REFERENCES domains (id),
  -- The organisation's data key, sealed by the installation's key.
  data_key BYTEA NOT NULL,
  -- Raised with every change to templates and rules.
  catalogue BIGINT NOT NULL DEFAULT 0,
  document TEXT NOT NULL,
  created_at BIGINT NOT NULL
) /*rowid*/;

CREATE TABLE environments (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  domain_id BYTEA NOT NULL REFERENCES domains (id),
  document TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (organisation_id, name)
) /*rowid*/;

CREATE TABLE applications (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  name TEXT NOT NULL,
  document TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (organisation_id, name)
) /*rowid*/;

-- Packed files of templates, by digest.
CREATE TABLE blobs (
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  digest TEXT NOT NULL,
  body BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (organisation_id, digest)
);

CREATE TABLE templates (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  class TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  UNIQUE (organisation_id, name)
) /*rowid*/;
CREATE INDEX templates_by_kind ON templates (organisation_id, kind);

CREATE TABLE template_versions (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  template_id BYTEA NOT NULL REFERENCES templates (id),
  version TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('preview', 'active', 'deprecated', 'disabled')),
  manager TEXT NOT NULL,
  -- Everything else the catalogue says, and what the manager described.
  document TEXT NOT NULL,
  content TEXT,
  -- Of the document and the content: a version never changes what it is.
  digest TEXT NOT NULL,
  built_in BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  UNIQUE (template_id, version)
) /*rowid*/;

CREATE TABLE rules (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  name TEXT NOT NULL,
  document TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (organisation_id, name)
) /*rowid*/;

CREATE TABLE principals (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  name TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  UNIQUE (organisation_id, name)
) /*rowid*/;

CREATE TABLE grants (
  principal_id BYTEA NOT NULL REFERENCES principals (id),
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  role TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'write', 'read', 'worker')),
  environment_id BYTEA REFERENCES environments (id),
  application_id BYTEA REFERENCES applications (id),
  created_at BIGINT NOT NULL
);
CREATE INDEX grants_by_principal ON grants (principal_id);

CREATE TABLE tokens (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  principal_id BYTEA NOT NULL REFERENCES principals (id),
  -- SHA-256 of the token; the token itself is nowhere.
  hash BYTEA NOT NULL UNIQUE,
  created_at BIGINT NOT NULL,
  revoked_at BIGINT
) /*rowid*/;

CREATE TABLE workers (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  name TEXT NOT NULL,
  document TEXT NOT NULL,
  seen_at BIGINT NOT NULL
) /*rowid*/;

-- What an operation asks of a worker, interned.
CREATE TABLE queues (
  id BIGINT PRIMARY KEY,
  manager TEXT NOT NULL,
  needs TEXT NOT NULL UNIQUE
);

-- The one aggregate: everything that touches the world is a row here.
CREATE TABLE changes (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL,
  kind TEXT NOT NULL,
  environment_id BYTEA REFERENCES environments (id),
  application_id BYTEA REFERENCES applications (id),
  prev_status TEXT NOT NULL,
  status TEXT NOT NULL,
  -- Per application and environment: one running, one waiting.
  slot TEXT CHECK (slot IN ('running', 'waiting')),
  parent_id BYTEA REFERENCES changes (id),
  -- Embedded: the process that answers for it; whoever finds it dead takes over.
  owner_id BYTEA,
  actor TEXT NOT NULL,
  commit_sha TEXT,
  -- Sealed: the Score file, the image and what else was asked for.
  request BYTEA NOT NULL,
  plan_number BIGINT NOT NULL,
  -- What was decided, for people: items and removals with reasons.
  plan TEXT,
  -- How many uses of resources it gives up at its end.
  releases BIGINT NOT NULL,
  open_operations BIGINT NOT NULL,
  failed_operations BIGINT NOT NULL,
  error TEXT,
  timeout_at BIGINT,
  rollback BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  started_at BIGINT,
  completed_at BIGINT,
  updated_at BIGINT NOT NULL,
  cancel_requested_at BIGINT,
  CHECK (prev_status || '>' || status IN (/*change moves*/))
) /*busy*/;
CREATE UNIQUE INDEX changes_one_per_slot ON changes (application_id, environment_id, slot) WHERE slot IS NOT NULL;
CREATE INDEX changes_open ON changes (status) WHERE status IN ('pending', 'approval_pending', 'in_progress');
CREATE INDEX changes_by_environment ON changes (environment_id, id);
CREATE INDEX changes_owned ON changes (owner_id) WHERE owner_id IS NOT NULL AND status IN ('pending', 'approval_pending', 'in_progress');
CREATE INDEX changes_by_parent ON changes (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE idempotency (
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  key_hash BYTEA NOT NULL,
  body_hash BYTEA NOT NULL,
  change_id BYTEA NOT NULL REFERENCES changes (id),
  created_at BIGINT NOT NULL,
  PRIMARY KEY (organisation_id, key_hash)
) /*rowid*/;

-- Ready ones, made ahead.
CREATE TABLE pools (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL REFERENCES organisations (id),
  environment_id BYTEA NOT NULL REFERENCES environments (id),
  name TEXT NOT NULL,
  -- As written; the parameters are sealed.
  document TEXT NOT NULL,
  claims BIGINT NOT NULL,
  -- How often none was ready.
  on_demand BIGINT NOT NULL,
  claimed_at BIGINT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (organisation_id, name)
) /*rowid*/;

CREATE TABLE resources (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL,
  -- Where it was made; it belongs to its domain.
  environment_id BYTEA NOT NULL REFERENCES environments (id),
  domain_id BYTEA NOT NULL REFERENCES domains (id),
  kind TEXT NOT NULL,
  class TEXT NOT NULL,
  key_tag TEXT NOT NULL CHECK (key_tag IN ('dedicated', 'shared', 'matched', 'workload')),
  key_name TEXT NOT NULL,
  name TEXT NOT NULL,
  slug TEXT NOT NULL UNIQUE,
  workload BIGINT NOT NULL,
  template_version_id BYTEA NOT NULL REFERENCES template_versions (id),
  prev_state TEXT NOT NULL,
  state TEXT NOT NULL,
  -- What the keys go by: moves more seldom than the state, so that most writes touch no index.
  place TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('ready', 'queued', 'approval_pending', 'pending', 'in_progress', 'done', 'error', 'rejected', 'unknown')),
  kept_by TEXT NOT NULL CHECK (kept_by IN ('consumers', 'pool', 'hand', 'external')),
  protected BIGINT NOT NULL,
  generation BIGINT NOT NULL,
  observed_generation BIGINT NOT NULL,
  -- Desired: symbolic parameters, sensitive leaves sealed.
  spec TEXT NOT NULL,
  -- Last success: symbolic parameters, version, resolved inputs (sealed) and their digest, outputs by leaf.
  applied_spec TEXT,
  applied_version_id BYTEA REFERENCES template_versions (id),
  inputs BYTEA,
  inputs_digest BYTEA,
  outputs TEXT,
  -- What the manager keeps with it, sealed.
  manager_state BYTEA,
  external_id TEXT,
  -- Last look.
  observed TEXT,
  observed_at BIGINT,
  message TEXT,
  error TEXT,
  -- Raised by every claim; whoever holds an older one holds nothing.
  fence BIGINT NOT NULL,
  waiters BIGINT NOT NULL,
  -- On which terms it is shared: how many may use it, and who, in CEL.
  max_consumers BIGINT,
  share_when TEXT,
  pool_id BYTEA REFERENCES pools (id),
  -- Nobody uses it: it is destroyed at this time, unless somebody thinks again.
  destroy_after BIGINT,
  replaced_by BYTEA REFERENCES resources (id),
  lineage_id BYTEA NOT NULL,
  -- The change that made it, and the one whose desired state it has.
  made_change_id BYTEA NOT NULL REFERENCES changes (id),
  spec_change_id BYTEA NOT NULL REFERENCES changes (id),
  created_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  CHECK (place = CASE state WHEN 'destroy' THEN 'doomed' WHEN 'destroyed' THEN 'gone' ELSE 'live' END),
  CHECK (prev_state || '>' || state IN (/*state moves*/))
) /*busy*/;
CREATE UNIQUE INDEX resources_live_key ON resources (domain_id, kind, class, key_tag, key_name)
  WHERE place = 'live';
CREATE INDEX resources_doomed_key ON resources (domain_id, kind, class, key_tag, key_name) WHERE place = 'doomed';
CREATE INDEX resources_by_environment ON resources (environment_id, id);
CREATE INDEX resources_by_pool ON resources (pool_id, id) WHERE pool_id IS NOT NULL;
CREATE INDEX resources_buried ON resources (destroy_after) WHERE destroy_after IS NOT NULL;
CREATE INDEX resources_by_external_id ON resources (organisation_id, external_id) WHERE external_id IS NOT NULL;

CREATE TABLE consumers (
  resource_id BYTEA NOT NULL REFERENCES resources (id),
  application_id BYTEA NOT NULL REFERENCES applications (id),
  environment_id BYTEA NOT NULL REFERENCES environments (id),
  requirement TEXT NOT NULL,
  organisation_id BYTEA NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('joining', 'active', 'leaving')),
  params TEXT NOT NULL,
  -- The outputs it uses: a list of names.
  outputs TEXT NOT NULL,
  -- The change that joined it, or that takes it away.
  change_id BYTEA NOT NULL REFERENCES changes (id),
  since BIGINT NOT NULL,
  PRIMARY KEY (resource_id, application_id, environment_id, requirement)
) /*rowid*/;
CREATE INDEX consumers_by_application ON consumers (application_id, environment_id);
CREATE INDEX consumers_leaving ON consumers (change_id) WHERE state = 'leaving';

CREATE TABLE dependencies (
  resource_id BYTEA NOT NULL REFERENCES resources (id),
  depends_on_id BYTEA NOT NULL REFERENCES resources (id),
  requirement TEXT NOT NULL,
  organisation_id BYTEA NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('strong', 'weak', 'output')),
  relationship TEXT NOT NULL CHECK (relationship IN ('requires', 'uses', 'extends')),
  -- Required by its template, not by a Score file.
  own BIGINT NOT NULL,
  PRIMARY KEY (resource_id, depends_on_id, requirement)
) /*rowid*/;
CREATE INDEX dependencies_reverse ON dependencies (depends_on_id);

-- Sets of parameters by which resources are matched in a planning domain; registered on first use.
CREATE TABLE keysets (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL,
  domain_id BYTEA NOT NULL REFERENCES domains (id),
  kind TEXT NOT NULL,
  class TEXT NOT NULL,
  names TEXT NOT NULL,
  UNIQUE (domain_id, kind, class, names)
) /*rowid*/;
-- The values of those parameters, as a keyed hash. Only those with room are in the index, in the order they are taken.
CREATE TABLE match_keys (
  resource_id BYTEA NOT NULL REFERENCES resources (id),
  keyset_id BYTEA NOT NULL REFERENCES keysets (id),
  hash BYTEA NOT NULL,
  -- 0 where only the age decides.
  counted BIGINT NOT NULL,
  consumers BIGINT NOT NULL,
  max_consumers BIGINT,
  room BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (resource_id, keyset_id)
) /*rowid*/;
CREATE INDEX match_keys_in_order ON match_keys (keyset_id, hash, consumers, created_at, resource_id) WHERE room = 1;

-- Desired states that were replaced by newer ones; the current one is with its resource.
CREATE TABLE revisions (
  resource_id BYTEA NOT NULL REFERENCES resources (id),
  number BIGINT NOT NULL,
  organisation_id BYTEA NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('draft', 'proposed', 'approved', 'applying', 'applied', 'failed', 'rejected', 'discarded')),
  template_version_id BYTEA NOT NULL REFERENCES template_versions (id),
  spec TEXT NOT NULL,
  change_id BYTEA NOT NULL REFERENCES changes (id),
  created_at BIGINT NOT NULL,
  PRIMARY KEY (resource_id, number)
) /*rowid*/;

-- Parameters marked unique: one holder per template and value (a keyed hash) among the living.
CREATE TABLE unique_values (
  template_id BYTEA NOT NULL REFERENCES templates (id),
  parameter TEXT NOT NULL,
  hash BYTEA NOT NULL,
  resource_id BYTEA NOT NULL REFERENCES resources (id),
  organisation_id BYTEA NOT NULL,
  PRIMARY KEY (template_id, parameter, hash)
) /*rowid*/;
CREATE INDEX unique_values_by_resource ON unique_values (resource_id);

CREATE TABLE operations (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL,
  change_id BYTEA NOT NULL REFERENCES changes (id),
  plan_number BIGINT NOT NULL,
  resource_id BYTEA REFERENCES resources (id),
  kind TEXT NOT NULL,
  prev_status TEXT NOT NULL,
  status TEXT NOT NULL,
  -- Approval: null = none needed, 'closed' = asked and waiting, 'open' = given.
  gate TEXT CHECK (gate IN ('closed', 'open')),
  generation BIGINT NOT NULL,
  conditional BIGINT NOT NULL,
  -- The end of its change gives up uses of resources.
  releasing BIGINT NOT NULL,
  -- Null: nothing to run.
  queue_id BIGINT REFERENCES queues (id),
  -- Edges and waits that are still open.
  open_predecessors BIGINT NOT NULL,
  attempt BIGINT NOT NULL,
  retries BIGINT NOT NULL,
  not_before BIGINT NOT NULL,
  worker_id BYTEA,
  request_id BYTEA,
  fence BIGINT NOT NULL,
  -- Counted up by every renewal; a reaper watches it stand still.
  renewals BIGINT NOT NULL,
  lines BIGINT NOT NULL,
  lease_ms BIGINT NOT NULL,
  cancel_requested_at BIGINT,
  result_digest BYTEA,
  -- Sealed for the resource: what this attempt was given.
  inputs BYTEA,
  inputs_digest BYTEA,
  -- Sealed: what terraform had begun, for recovery.
  journal BYTEA,
  -- What a describe works on.
  payload TEXT,
  error TEXT,
  created_at BIGINT NOT NULL,
  started_at BIGINT,
  completed_at BIGINT,
  CHECK (prev_status || '>' || status IN (/*operation moves*/))
) /*busy*/;
CREATE INDEX operations_ready ON operations (queue_id, not_before, id) WHERE status = 'queued';
CREATE UNIQUE INDEX operations_one_running ON operations (resource_id) WHERE status = 'in_progress';
CREATE INDEX operations_open_by_resource ON operations (resource_id)
  WHERE status IN ('blocked', 'approval_pending', 'queued', 'in_progress');
CREATE INDEX operations_by_change ON operations (change_id);
CREATE INDEX operations_with_journal ON operations (resource_id, id) WHERE journal IS NOT NULL;

CREATE TABLE operation_edges (
  operation_id BYTEA NOT NULL REFERENCES operations (id),
  predecessor_id BYTEA NOT NULL REFERENCES operations (id),
  -- Goes on also when the one before it fails.
  weak BIGINT NOT NULL,
  PRIMARY KEY (predecessor_id, operation_id)
) /*rowid*/;
CREATE INDEX operation_edges_back ON operation_edges (operation_id);

-- On (resource, generation, ready | gone), not on somebody's operation.
CREATE TABLE waits (
  resource_id BYTEA NOT NULL REFERENCES resources (id),
  operation_id BYTEA NOT NULL REFERENCES operations (id),
  generation BIGINT NOT NULL,
  until TEXT NOT NULL CHECK (until IN ('ready', 'gone')),
  PRIMARY KEY (resource_id, operation_id, until)
) /*rowid*/;
CREATE INDEX waits_by_operation ON waits (operation_id);

CREATE TABLE attempts (
  operation_id BYTEA NOT NULL REFERENCES operations (id),
  number BIGINT NOT NULL,
  worker_id BYTEA,
  fence BIGINT NOT NULL,
  started_at BIGINT,
  ended_at BIGINT NOT NULL,
  outcome TEXT NOT NULL,
  error TEXT,
  PRIMARY KEY (operation_id, number)
) /*rowid*/;

-- Terraform's state, every version, sealed; the lock is bound to the fence.
CREATE TABLE states (
  resource_id BYTEA NOT NULL REFERENCES resources (id),
  number BIGINT NOT NULL,
  organisation_id BYTEA NOT NULL,
  serial BIGINT NOT NULL,
  lineage TEXT NOT NULL,
  digest BYTEA NOT NULL,
  body BYTEA NOT NULL,
  fence BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (resource_id, number)
);
CREATE TABLE state_locks (
  resource_id BYTEA PRIMARY KEY REFERENCES resources (id),
  lock_id TEXT NOT NULL,
  fence BIGINT NOT NULL,
  document TEXT NOT NULL,
  created_at BIGINT NOT NULL
) /*rowid*/;

CREATE TABLE log_heads (
  change_id BYTEA PRIMARY KEY REFERENCES changes (id),
  next_seq BIGINT NOT NULL
) /*rowid*/;
CREATE TABLE log_chunks (
  change_id BYTEA NOT NULL REFERENCES changes (id),
  first_seq BIGINT NOT NULL,
  count BIGINT NOT NULL,
  organisation_id BYTEA NOT NULL,
  operation_id BYTEA NOT NULL REFERENCES operations (id),
  -- Compressed, then sealed.
  body BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (change_id, first_seq)
);

-- What happened, by whom; hashes are chained later by one sealer.
CREATE TABLE events (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL,
  kind TEXT NOT NULL,
  actor TEXT NOT NULL,
  change_id BYTEA,
  resource_id BYTEA,
  operation_id BYTEA,
  document TEXT NOT NULL,
  chain BYTEA,
  created_at BIGINT NOT NULL
) /*rowid*/;
CREATE INDEX events_by_resource ON events (resource_id, id) WHERE resource_id IS NOT NULL;
CREATE INDEX events_by_change ON events (change_id, id) WHERE change_id IS NOT NULL;
