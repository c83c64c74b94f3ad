"""Sessions, part by part and as a whole."""
