"""`forebay doctor`."""
