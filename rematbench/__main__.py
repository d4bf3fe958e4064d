"""``python -m rematbench``: the same as the ``rematbench`` command."""

from rematbench.commands import rematbench

if __name__ == "__main__":
    rematbench()
