"""The commands: Hydra, sweeps, help, what a terminal shows."""
