def command():
    """Do prolr with something."""
