-- Only additions: programs that do not know them go on working.

-- The fence of the claim that only its own token speaks for. One that was made by or for an earlier release has none,
-- and its worker speaks with the token of its pool.
ALTER TABLE operations ADD COLUMN token_fence BIGINT;
