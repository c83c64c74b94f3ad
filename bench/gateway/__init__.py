"""Gateways side by side: what a call costs through each of them."""
