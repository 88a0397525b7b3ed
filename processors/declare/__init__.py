"""What a user declares: networks, streams, boxes; nothing is judged yet."""
