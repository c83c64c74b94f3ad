"""The jobs library: task types, VRAM, restarts, endings."""
