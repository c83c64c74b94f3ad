"""`TaskRunner`: task types of a Python program, run model by model within a VRAM budget."""
