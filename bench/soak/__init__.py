"""A soak: hours of mixed load and faults against one gateway, whose resources must stay flat."""
