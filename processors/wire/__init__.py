"""The records that processes exchange: schemas, encoding, decoding."""
