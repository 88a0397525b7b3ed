"""Reading arcs and topics, and sending revisions by hand."""
