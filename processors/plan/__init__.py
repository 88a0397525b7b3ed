"""Plans: boxes, scopes, partitions and topics; the deployed plan."""
