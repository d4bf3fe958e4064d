"""The papers' figures and tables, drawn from rows: a module or more for each paper."""
