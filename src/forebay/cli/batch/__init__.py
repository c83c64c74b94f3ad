"""`forebay batch`."""
