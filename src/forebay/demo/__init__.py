"""The demo: simulated nodes, scripted users and a real gateway, with captions on the page."""
