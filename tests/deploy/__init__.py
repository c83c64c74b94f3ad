"""What `deploy/` ships agrees with the program it is for."""
