"""The report of one judge on one benchmark."""
