-- Statements about blobs. Pieces are text (base64), because not every technology can carry bytes.

-- name: write_piece
-- Write one piece of a blob.
INSERT INTO __agents_blob_pieces (space, digest, number, data) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (space, digest, number) DO NOTHING;

-- name: finish_blob
-- Make a blob visible, if all of its pieces are there.
INSERT INTO __agents_blobs (space, digest, size, media_type, stored_at)
SELECT ?1, ?2, ?3, ?4, ?5
WHERE (SELECT COUNT(*) FROM __agents_blob_pieces WHERE space = ?1 AND digest = ?2) = ?6
ON CONFLICT (space, digest) DO NOTHING;

-- name: read_pieces
-- Return pieces in order.
SELECT data FROM __agents_blob_pieces
WHERE space = ?1 AND digest = ?2 AND number >= ?3 AND number < ?4 ORDER BY number;

-- name: read_head
-- Return the metadata of one blob.
SELECT digest, size, media_type, stored_at FROM __agents_blobs WHERE space = ?1 AND digest = ?2;

-- name: read_page
-- Return the blobs of a space by digest.
SELECT digest, size, media_type, stored_at FROM __agents_blobs
WHERE space = ?1 AND digest > ?2 ORDER BY digest LIMIT ?3;

-- name: copy_pieces
-- Copy the pieces of a blob to another space.
INSERT INTO __agents_blob_pieces (space, digest, number, data)
SELECT ?2, digest, number, data FROM __agents_blob_pieces WHERE space = ?1 AND digest = ?3
ON CONFLICT (space, digest, number) DO NOTHING;

-- name: renew_head
-- Renew the time at which a blob was stored.
UPDATE __agents_blobs SET stored_at = ?3 WHERE space = ?1 AND digest = ?2 RETURNING digest;

-- name: delete_head
-- Remove one blob, unless it was stored later.
DELETE FROM __agents_blobs WHERE space = ?1 AND digest = ?2 AND stored_at <= ?3 RETURNING digest;

-- name: delete_pieces
-- Remove the pieces of one blob that is gone.
DELETE FROM __agents_blob_pieces WHERE space = ?1 AND digest = ?2
AND NOT EXISTS (SELECT 1 FROM __agents_blobs AS heads WHERE heads.space = ?1 AND heads.digest = ?2);

-- name: delete_heads
-- Remove all blobs of a space that were not stored later.
DELETE FROM __agents_blobs WHERE space = ?1 AND stored_at <= ?2 RETURNING digest;

-- name: delete_all_pieces
-- Remove the pieces of all blobs of a space that are gone.
DELETE FROM __agents_blob_pieces WHERE space = ?1
AND digest NOT IN (SELECT digest FROM __agents_blobs WHERE space = ?1);
