"""Schedules as computes and the intervals between their reads: edits that cost their locality.

Any set of recomputations makes a valid schedule of Checkmate's problem (9): a read finds the
latest compute before it, and each copy stays until its last read. So one recomputation more, or
less, changes only the intervals of what it writes and reads, and a search over schedules costs
per step what the step touches, whatever the size of the graph.
"""
