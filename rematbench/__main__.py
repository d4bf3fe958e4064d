"""``python -m rematbench``: the same as the ``rematbench`` command."""

from rematbench.app import main

main()
