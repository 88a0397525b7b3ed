"""From a declared network to a plan: types, exchanges, scopes, modes, replay paths."""
