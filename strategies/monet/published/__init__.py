"""MONeT's program as published."""
