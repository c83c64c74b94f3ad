"""What a gateway remembers: keys made at run time, usage by hour, ended requests."""
