"""Runtimes that evict and rematerialize while a step runs (DTR, Coop): compiled, and readable."""
