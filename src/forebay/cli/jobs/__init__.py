"""`forebay jobs`."""
