"""What people run today to offload: three rules."""
