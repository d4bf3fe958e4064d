"""Schedules by stages, as Checkmate writes them: search, and programs with rows on demand."""
