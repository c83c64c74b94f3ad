"""Error codes, their HTTP statuses, and errors as they are sent."""
