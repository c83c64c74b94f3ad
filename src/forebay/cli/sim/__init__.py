"""`forebay sim`."""
