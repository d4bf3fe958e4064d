"""The HTML report: its main page, and a page for each row with a plan."""
