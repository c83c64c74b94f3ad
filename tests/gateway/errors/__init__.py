"""What an error response says."""
