"""What planners share and knows no paper."""
