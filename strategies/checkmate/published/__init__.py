"""Checkmate's programs as printed, in Pyomo."""
