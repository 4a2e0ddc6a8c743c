-- family: state

-- Runs that nobody may be working on any more: those that run, by the end of their lease. The rest is not in it.
CREATE INDEX __agents_runs_running ON __agents_runs ((COALESCE(lease_until, 0)), started_at) WHERE status = 'running';
