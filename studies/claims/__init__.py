"""Claims of papers and public code of 2020 to 2026, checked as those of `analysis.claims` are.

A source is quoted as far as it could be read: an abstract, or a file of public code, its line and
commit. `derived` has what follows from a few lines.
"""

from studies.claims import compression, derived, quantisation, sampling, selection

MODULES = (sampling, selection, compression, quantisation, derived)
DOCUMENTS = {
    "VA": "vAttention",
    "MP": "MagicPIG",
    "HA": "HyperAttention",
    "KDE": "KDEformer",
    "H2O": "H2O",
    "DROPKV": "DropKV",
    "QUEST": "Quest",
    "MINF": "MInference",
    "TOPP": "Top-k and top-p attention",
    "WC": "WildCat",
    "THIN": "Thinformer",
    "KQ": "KQ-SVD",
    "LIN": "Linear attention on real heads",
    "SATA": "SATA",
    "ERF": "Equivalent random features",
    "TQ": "TurboQuant",
    "QJL": "QJL",
    "EDEN": "EDEN",
    "JC": "Jensen correction",
    "KIVI": "KIVI",
    "MASS": "Noisy logits beside exact ones",
    "ROPE": "Means of groups under rotary positions",
    "FP8": "Weights in small formats",
    "SCALE": "Scales of a code",
    "ALIGN": "Random features aligned with data",
}
