"""Graphs that no model was captured for: synthetic, layered, layer by layer."""
