"""Hints for names that are not methods here: which method is meant.

Short names for a spec, such as `performer`, are in `approx.ALIASES`.
"""

import re
from collections.abc import Sequence

# plain name, see `plain` → a name in `approx.METHODS` or `approx.ALIASES`
MEANT = {
    "favor": "performer",
    "favorplus": "performer",
    "favorplusplus": "generalized_exponential",
    "favorsharp": "dense_exponential",
    "randomfeatures": "positive",
    "positiverandomfeatures": "positive",
    "randomfourierfeatures": "rff",
    "linearattention": "elu",
    "lineartransformer": "elu",
    "randomfeatureattention": "rfa",
    "lowrank": "truncated_svd",
    "svd": "truncated_svd",
    "pca": "key_pca",
    "nystroem": "nystrom",
    "attentionsink": "streaming_llm",
    "attentionsinks": "streaming_llm",
    "slidingwindowattention": "sliding_window",
    "localattention": "sliding_window",
    "swa": "sliding_window",
    "blockdiagonal": "chunk",
    "sparsetransformer": "strided",
    "heavyhitters": "h2o",
    "heavyhitteroracle": "h2o",
    "skewedattention": "sparq",
    "sparqattention": "sparq",
    "softmax": "exact",
    "softmaxattention": "exact",
    "fullattention": "exact",
    "attention": "exact",
    "gau": "flash",
    "drive": "eden",
}


def bare_name(name: str) -> str:
    """Return a name in lower-case letters and digits only, so that spellings become equal."""
    text = name.lower().replace("+", "plus").replace("#", "sharp").replace("ö", "o")
    return re.sub(r"[^a-z0-9]", "", text)


def meant(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that is meant by another spelling or a synonym; None if none is."""
    same = {bare_name(one): one for one in known}
    found = same.get(bare_name(name)) or MEANT.get(bare_name(name))
    return found if found in known else None
