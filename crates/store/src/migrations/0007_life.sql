-- Only additions: programs that do not know them go on working.

-- What people say of a resource: description, owner, team, labels, tags, configs.
ALTER TABLE resources ADD COLUMN facts TEXT;
-- The record was deleted; the audit trail and the history of others keep its id.
ALTER TABLE resources ADD COLUMN deleted_at BIGINT;
-- Which attributes were found to differ, and what was decided about them.
ALTER TABLE resources ADD COLUMN drift TEXT;
ALTER TABLE dependencies ADD COLUMN parent BIGINT NOT NULL DEFAULT 0;
ALTER TABLE changes ADD COLUMN closed_gates BIGINT NOT NULL DEFAULT 0;
-- What it would have been given when somebody was asked to agree.
ALTER TABLE operations ADD COLUMN asked_digest BYTEA;
CREATE INDEX resources_deleted ON resources (id) WHERE deleted_at IS NOT NULL;
CREATE INDEX resources_drifting ON resources (environment_id, id) WHERE drift IS NOT NULL;
CREATE INDEX changes_open_by_environment ON changes (environment_id)
  WHERE status IN ('pending', 'approval_pending', 'in_progress');
CREATE INDEX consumers_by_environment ON consumers (environment_id);

-- Somebody has to agree before some operations of a plan run.
CREATE TABLE approvals (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL,
  -- A change under way, or a proposal that is not one yet.
  change_id BYTEA REFERENCES changes (id),
  plan_number BIGINT NOT NULL,
  proposal_id BYTEA,
  environment_id BYTEA,
  application_id BYTEA,
  status TEXT NOT NULL CHECK (status IN ('pending', 'approved', 'rejected', 'expired', 'withdrawn')),
  requester TEXT NOT NULL,
  -- How many have to agree, and whether the requester counts.
  approvers BIGINT NOT NULL,
  allow_self BIGINT NOT NULL,
  -- Of what is asked for: what is approved is what is applied.
  digest BYTEA NOT NULL,
  document TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  decided_at BIGINT
) /*rowid*/;
CREATE UNIQUE INDEX approvals_one_per_change ON approvals (change_id) WHERE status = 'pending' AND change_id IS NOT NULL;
CREATE UNIQUE INDEX approvals_one_per_proposal ON approvals (proposal_id) WHERE status = 'pending' AND proposal_id IS NOT NULL;
CREATE INDEX approvals_pending ON approvals (organisation_id, id) WHERE status = 'pending';

CREATE TABLE approval_votes (
  approval_id BYTEA NOT NULL REFERENCES approvals (id),
  actor TEXT NOT NULL,
  approves BIGINT NOT NULL,
  comment TEXT,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (approval_id, actor)
) /*rowid*/;

-- A change of a resource under review.
CREATE TABLE proposals (
  id BYTEA PRIMARY KEY,
  organisation_id BYTEA NOT NULL,
  resource_id BYTEA NOT NULL REFERENCES resources (id),
  status TEXT NOT NULL CHECK (status IN ('pending', 'approval_pending', 'approved', 'rejected', 'merged', 'discarded')),
  actor TEXT NOT NULL,
  -- What is to change: parameters (secrets sealed for the resource), template version, facts.
  document TEXT NOT NULL,
  -- The resource's generation it was made for.
  generation BIGINT NOT NULL,
  auto_merge BIGINT NOT NULL,
  -- The last dry run, and the change that merged it.
  preview_change_id BYTEA REFERENCES changes (id),
  change_id BYTEA REFERENCES changes (id),
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
) /*rowid*/;
CREATE INDEX proposals_by_resource ON proposals (resource_id, id);
