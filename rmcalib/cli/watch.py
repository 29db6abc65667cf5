def command():
    """Do watch with something."""
