-- Which execution a record is the result of, and on whose word it is kept.
ALTER TABLE record ADD COLUMN candidate INTEGER NOT NULL DEFAULT 0;
ALTER TABLE record ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;
ALTER TABLE record ADD COLUMN origin TEXT NOT NULL DEFAULT 'measured';
ALTER TABLE record ADD COLUMN config_hash INTEGER NOT NULL DEFAULT 0;

UPDATE record SET config_hash = stable_hash(config);

-- One execution, one record.
CREATE UNIQUE INDEX record_by_execution ON record (candidate, attempt) WHERE candidate != 0;

-- The default's own measurements are found without reading the other trials of their task; so is what an import brings
-- that is there already, for which there was an index by time.
CREATE INDEX record_by_config ON record (workload_id, target_id, config_hash);

DROP INDEX record_by_time;

ALTER TABLE best ADD COLUMN put INTEGER NOT NULL DEFAULT 0 CHECK (put IN (0, 1));

-- Records may be pruned, and are looked for here first.
CREATE INDEX best_by_record ON best (record_id);

-- A listing of jobs reads small rows: what is long lies apart.
DROP INDEX job_by_model;

ALTER TABLE job RENAME TO old_job;

CREATE TABLE job (
  id INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  target TEXT NOT NULL,
  device_key TEXT NOT NULL,
  tuner TEXT NOT NULL,
  codegen_id TEXT NOT NULL,
  owner TEXT NOT NULL,
  priority INTEGER NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  trials INTEGER NOT NULL,
  best_ms REAL NOT NULL,
  model_hash TEXT NOT NULL,
  build_with TEXT NOT NULL,
  created_unix_ms INTEGER NOT NULL,
  updated_unix_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX job_by_model ON job (model_hash);

CREATE TABLE job_text (
  job INTEGER PRIMARY KEY REFERENCES job (id),
  spec TEXT NOT NULL,
  summary TEXT NOT NULL,
  request BLOB NOT NULL
) STRICT;

INSERT INTO job
SELECT id, model, target, device_key, tuner, codegen_id, '', 0, state, reason, trials, best_ms, model_hash, build_with,
  created_unix_ms, updated_unix_ms
FROM old_job;

INSERT INTO job_text SELECT id, spec, summary, x'' FROM old_job;

DROP TABLE old_job;

CREATE TABLE lease (
  id INTEGER PRIMARY KEY,
  instance TEXT NOT NULL,
  job INTEGER NOT NULL REFERENCES job (id),
  work BLOB NOT NULL,
  granted_unix_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX lease_by_job ON lease (job);

CREATE TABLE token (
  id TEXT PRIMARY KEY,
  hash TEXT NOT NULL,
  owner TEXT NOT NULL,
  scopes TEXT NOT NULL,
  keys TEXT NOT NULL,
  created_unix_ms INTEGER NOT NULL,
  expires_unix_ms INTEGER NOT NULL,
  revoked INTEGER NOT NULL CHECK (revoked IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE certificate (
  serial TEXT PRIMARY KEY,
  keys TEXT NOT NULL,
  created_unix_ms INTEGER NOT NULL,
  expires_unix_ms INTEGER NOT NULL,
  revoked INTEGER NOT NULL CHECK (revoked IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE approval (
  key TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('approved', 'pending', 'revoked')),
  updated_unix_ms INTEGER NOT NULL,
  PRIMARY KEY (key, fingerprint)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
  id INTEGER PRIMARY KEY,
  time_unix_ms INTEGER NOT NULL,
  principal TEXT NOT NULL,
  call TEXT NOT NULL,
  subject TEXT NOT NULL,
  verdict TEXT NOT NULL,
  detail TEXT NOT NULL
) STRICT;

-- The trials again, with the execution and the origin.
DROP VIEW trial;

CREATE VIEW trial AS
SELECT
  record.id,
  workload.text AS workload,
  anchor.text AS anchor,
  target.text AS target,
  device.key AS device_key,
  device.fingerprint,
  record.threads,
  record.cache_policy,
  record.template,
  record.template_version,
  record.config,
  record.codegen_id,
  record.purpose,
  record.outcome,
  record.error,
  record.costs_s,
  record.median_s,
  record.tuner,
  record.job,
  record.time_unix_ms,
  record.candidate,
  record.attempt,
  record.origin
FROM record
JOIN workload ON workload.id = record.workload_id
JOIN anchor ON anchor.id = record.anchor_id
JOIN target ON target.id = record.target_id
JOIN device ON device.id = record.device_id;
