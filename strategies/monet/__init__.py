"""MONeT: joint choice of schedule and implementations (Shah et al., ICLR 2021)."""
