"""`forebay config`."""
