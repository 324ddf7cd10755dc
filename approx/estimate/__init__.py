"""What an estimate is: a low-rank part ⊕ a sparse part, under a mask."""
