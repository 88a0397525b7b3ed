"""Other engines on the same topics: what `make bench-peers` measures Errata against."""
