"""`forebay bench`."""
