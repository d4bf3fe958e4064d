"""Integrated rematerialization and paging (Patil et al., ICML 2022)."""
