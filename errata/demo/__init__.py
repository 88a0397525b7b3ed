"""The demo: a real trade tape with real corrections, in both modes, with an independent audit."""
