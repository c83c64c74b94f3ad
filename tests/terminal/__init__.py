"""The live view in a terminal."""
