"""Dynamic programs over chains of segments (rotor's)."""
