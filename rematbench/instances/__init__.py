"""The library of problems: how its graphs, budgets and selections are made; its records."""
