"""Methods made of methods: Scatterbrain, sampled supports, centred keys."""
