-- family: state

-- What a checkpoint or a staged row is, and whether a flag asks for an abort, was said in texts: a suffix of the step's id,
-- a tool call that no model makes, a mark before the reason.
ALTER TABLE __agents_checkpoints ADD COLUMN kind TEXT COLLATE "C" NOT NULL DEFAULT 'step';
UPDATE __agents_checkpoints SET kind = 'turn' WHERE step_id LIKE '%-turn';
UPDATE __agents_checkpoints SET kind = 'aside' WHERE step_id LIKE '%-aside';

ALTER TABLE __agents_staging ADD COLUMN kind TEXT COLLATE "C" NOT NULL DEFAULT 'call';
UPDATE __agents_staging SET kind = substr(tool_call_id, 2), tool_call_id = ''
WHERE tool_call_id IN (':answer', ':summary');

ALTER TABLE __agents_interrupt_flags ADD COLUMN abort BIGINT NOT NULL DEFAULT 0;
UPDATE __agents_interrupt_flags SET abort = 1, reason = NULLIF(substr(reason, 8), '')
WHERE reason = chr(30) || 'abort' OR starts_with(reason, chr(30) || 'abort' || chr(30));
UPDATE __agents_interrupt_flags SET reason = substr(reason, 2)
WHERE abort = 0 AND starts_with(reason, chr(30) || chr(30));
