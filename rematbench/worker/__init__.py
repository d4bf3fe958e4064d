"""Processes that run jobs, and the cache of what they made."""
