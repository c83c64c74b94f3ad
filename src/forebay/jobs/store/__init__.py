"""The job store: jobs in SQLite or PostgreSQL, and who is notified of their changes."""
