"""Worker processes of one machine that share a queue: who leads, and their messages, no store."""
