-- What a job's end-to-end measurement said to build with, and the model that it was about.
ALTER TABLE job ADD COLUMN model_hash TEXT NOT NULL DEFAULT '';
ALTER TABLE job ADD COLUMN build_with TEXT NOT NULL DEFAULT '';

CREATE INDEX job_by_model ON job (model_hash);

-- An import looks for what is there already.
CREATE INDEX record_by_time ON record (time_unix_ms);
