CREATE TABLE workload (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL,
  text TEXT NOT NULL UNIQUE
) STRICT;

CREATE INDEX workload_by_hash ON workload (hash);

CREATE TABLE anchor (
  id INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE target (
  id INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE device (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  UNIQUE (key, fingerprint)
) STRICT;

CREATE TABLE record (
  id INTEGER PRIMARY KEY,
  workload_id INTEGER NOT NULL REFERENCES workload (id),
  anchor_id INTEGER NOT NULL REFERENCES anchor (id),
  target_id INTEGER NOT NULL REFERENCES target (id),
  device_id INTEGER NOT NULL REFERENCES device (id),
  threads INTEGER NOT NULL CHECK (threads >= 1),
  cache_policy TEXT NOT NULL,
  template TEXT NOT NULL,
  template_version INTEGER NOT NULL,
  config TEXT NOT NULL,
  codegen_id TEXT NOT NULL,
  purpose TEXT NOT NULL,
  outcome TEXT NOT NULL,
  error TEXT NOT NULL,
  costs_s TEXT NOT NULL,
  median_s REAL CHECK (median_s > 0),
  tuner TEXT NOT NULL,
  job INTEGER NOT NULL,
  time_unix_ms INTEGER NOT NULL,
  CHECK ((outcome = 'ok') = (median_s IS NOT NULL))
) STRICT;

CREATE INDEX record_by_workload ON record (workload_id, target_id);

CREATE INDEX record_by_job ON record (job);

CREATE TABLE best (
  workload_id INTEGER NOT NULL REFERENCES workload (id),
  target_id INTEGER NOT NULL REFERENCES target (id),
  anchor_id INTEGER NOT NULL REFERENCES anchor (id),
  device_id INTEGER NOT NULL REFERENCES device (id),
  threads INTEGER NOT NULL,
  template TEXT NOT NULL,
  template_version INTEGER NOT NULL,
  confirmed INTEGER NOT NULL CHECK (confirmed IN (0, 1)),
  median_s REAL NOT NULL,
  record_id INTEGER NOT NULL REFERENCES record (id),
  PRIMARY KEY (workload_id, target_id, anchor_id, device_id, threads, template, template_version)
) STRICT, WITHOUT ROWID;

CREATE INDEX best_by_anchor ON best (anchor_id, target_id);

CREATE TABLE job (
  id INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  target TEXT NOT NULL,
  device_key TEXT NOT NULL,
  tuner TEXT NOT NULL,
  codegen_id TEXT NOT NULL,
  spec TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  summary TEXT NOT NULL,
  trials INTEGER NOT NULL,
  best_ms REAL NOT NULL,
  created_unix_ms INTEGER NOT NULL,
  updated_unix_ms INTEGER NOT NULL
) STRICT;

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
  record.time_unix_ms
FROM record
JOIN workload ON workload.id = record.workload_id
JOIN anchor ON anchor.id = record.anchor_id
JOIN target ON target.id = record.target_id
JOIN device ON device.id = record.device_id;
