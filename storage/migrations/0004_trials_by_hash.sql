-- What an import brings that is there already is found without reading the other trials of its config.
ALTER TABLE record ADD COLUMN trial_hash INTEGER NOT NULL DEFAULT 0;

UPDATE record SET trial_hash = stable_hash(
  workload_id || ' ' || anchor_id || ' ' || target_id || ' ' || device_id || ' ' || threads || ' ' ||
  cache_policy || ' ' || template || ' ' || template_version || ' ' || config || ' ' || codegen_id || ' ' ||
  purpose || ' ' || outcome || ' ' || error || ' ' || costs_s || ' ' || tuner || ' ' || time_unix_ms);

CREATE INDEX record_by_trial ON record (trial_hash);
