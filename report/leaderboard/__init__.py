"""What a field of strategies does on a field of problems: ``rematbench-report --leaderboard``."""
