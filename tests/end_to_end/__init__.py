"""The installed command, in subprocesses, as people run it."""
