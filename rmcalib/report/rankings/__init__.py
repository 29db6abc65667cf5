"""The report of a forecast of rankings."""
