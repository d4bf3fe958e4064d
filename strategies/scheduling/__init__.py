"""What planners of schedules share: schedules, local search, programs for HiGHS, anytime loops."""
