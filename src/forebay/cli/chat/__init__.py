"""`forebay chat`."""
