"""A network's processes and topics as those who deploy by files want them told."""
