"""The page at `/` and the picture that it draws: who waits, what runs, what is wrong."""
