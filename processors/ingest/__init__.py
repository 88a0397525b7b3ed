"""From a user's topic to a source's arc: decode, reconcile with the identity index, stamp."""
