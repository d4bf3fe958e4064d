"""Ours: schedule and implementations together, the problem of MONeT (Shah et al., ICLR 2021)."""
