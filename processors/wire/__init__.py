"""What processes write for one another: schemas, encoding, decoding."""
