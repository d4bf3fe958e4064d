"""What a result says: the row, its extra keys, its provenance."""
