"""Our own search for recomputation and implementations together."""
