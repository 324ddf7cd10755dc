"""Random-feature estimates φ(q)·φ(k), one file a family."""
