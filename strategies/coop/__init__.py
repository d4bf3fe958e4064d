"""Coop (Zhang et al., NeurIPS 2023): DTR on memory with addresses."""
