"""``python -m rematbench``: the same as the ``rematbench`` command."""

from rematbench.cli.commands import rematbench

if __name__ == "__main__":
    rematbench()
