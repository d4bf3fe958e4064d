"""From settings to a row, without Hydra: the graph, the plan, the run."""
