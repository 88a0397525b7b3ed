"""The demo: a real trade tape with real corrections, both modes, and an audit by a stranger."""
