"""What commands write, and how."""
