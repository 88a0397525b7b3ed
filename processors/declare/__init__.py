"""What a user declares: networks, streams, boxes; `compile` checks them."""
