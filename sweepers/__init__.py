"""Sweepers: indexed copies of connection points, and the service that answers from them."""
