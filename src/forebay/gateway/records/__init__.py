"""What the gateway remembers, and who writes it down."""
