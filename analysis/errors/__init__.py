"""An estimate against exact: metrics, the row sums they are made of, the spectral norm."""
