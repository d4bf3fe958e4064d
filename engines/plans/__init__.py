"""From what is computed, or kept, to a plan."""
