-- Whatever a deployment looks up takes as long among a million as among a few.

-- What somebody might share, by type and class.
CREATE INDEX resources_sharable ON resources (domain_id, kind, class, id)
  WHERE key_tag IN ('shared', 'matched') AND place IN ('live', 'doomed') AND pool_id IS NULL;

-- What the end of a change settles.
CREATE INDEX consumers_joining ON consumers (change_id) WHERE state = 'joining';

-- `room` is in it so that nothing has to be looked up in the table.
DROP INDEX match_keys_in_order;
CREATE INDEX match_keys_in_order ON match_keys (keyset_id, hash, consumers, created_at, resource_id, room)
  WHERE room = 1;
