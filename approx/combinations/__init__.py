"""Methods that combine others: Scatterbrain, sampled supports, centred keys."""
