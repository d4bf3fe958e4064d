"""MONeT: schedule and implementations in one integer program (Shah et al., ICLR 2021)."""
