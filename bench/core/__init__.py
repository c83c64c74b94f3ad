"""The pure core and the library queue, against the standard library's heap and queue."""
