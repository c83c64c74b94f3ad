"""The settings: what is refused, where values come from, and what is generated from them."""
