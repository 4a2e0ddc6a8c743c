"""The checks of the BlobStore contract."""
