"""The report of many judges on one benchmark."""
