"""The representation of an estimate: a low-rank part ⊕ a sparse part, under a mask."""
