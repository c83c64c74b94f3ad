"""The gateway's side of sessions."""
