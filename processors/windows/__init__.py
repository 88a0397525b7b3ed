"""Which windows hold a tuple: by event time, or by so many rows."""
