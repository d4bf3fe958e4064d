"""The ``torch.compile`` backend ``rematbench``: a budget in bytes, plans by any strategy."""
