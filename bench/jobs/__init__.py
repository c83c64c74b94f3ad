"""Jobs: how fast they are taken in and claimed, and what they cost whoever is live."""
