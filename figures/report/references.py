r"""The works that the report cites.

The works on a method are in the docstring of its class, in its section "References"; `OTHERS` has
the rest, written in the same way. The key of a work is surname, year and first word of the title.
A text cites by the mark ``[@key]``, or ``[@one; @two]``; `numbered` makes a number of each.
"""

import functools
import inspect
import re
import unicodedata

from approx import METHODS, Method
from approx.method import Label
from figures.drawing import looks

OTHERS = """
.. [1] A. I. Aptekarev, "Sharp constants for rational approximations of analytic functions",
   Sbornik Mathematics 193, 2002.
.. [2] P. Blanchard, D. J. Higham, N. J. Higham, "Accurately Computing the Log-Sum-Exp and Softmax
   Functions", IMA J. Numerical Analysis 41, 2021.
.. [3] P. Dewilde, A.-J. van der Veen, "Time-Varying Systems and Computations", Kluwer 1998.
.. [4] N. Halko, P.-G. Martinsson, J. A. Tropp, "Finding Structure with Randomness", SIAM Review 53,
   2011.
.. [5] R. A. Horn, C. R. Johnson, "Matrix Analysis", 2nd edition, Cambridge 2013.
.. [6] Z. Lin, M. Chen, Y. Ma, "The Augmented Lagrange Multiplier Method for Exact Recovery of
   Corrupted Low-Rank Matrices", 2010, arXiv 1009.5055.
.. [7] Y. Nakatsukasa, O. Sète, L. N. Trefethen, "The AAA Algorithm for Rational Approximation",
   SIAM J. Scientific Computing 40, 2018.
.. [8] I. Reid, K. Choromanski, V. Likhosherstov, A. Weller, "Simplex Random Features", ICML 2023.
.. [9] L. N. Trefethen, "Approximation Theory and Approximation Practice", SIAM 2013.
.. [10] A. Vaswani et al., "Attention Is All You Need", NIPS 2017.
.. [11] A. Vehtari, D. Simpson, A. Gelman, Y. Yao, J. Gabry, "Pareto Smoothed Importance Sampling",
   J. Machine Learning Research 25, 2024.
.. [12] W. Wang et al., "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of
   Pre-Trained Transformers", NeurIPS 2020.
.. [13] F. X. Yu et al., "Orthogonal Random Features", NIPS 2016.
"""
LIST = "[@*]"  # where the list of works stands
_ENTRY = re.compile(
    r'([^"]+), "([^"]+)", (.*?\b((?:1[789]|20)\d\d)\b(?!\.\d)(?:, arXiv[: ]\d{4}\.\d{4,5})?)'
)
_MARK = re.compile(r"\[@([a-z0-9]+(?:; @[a-z0-9]+)*)\]")


def works(text: str) -> dict[str, str]:
    r"""Return the works of a section "References" by their keys; an entry without author is none.

    Examples
    --------
    >>> works('.. [1] A. Bé, C. Do, "On exp",\n   ABC 2021, section 3.\n\nExamples')
    {'be2021on': 'A. Bé, C. Do, *On exp*, ABC 2021.'}
    """
    found = {}
    for entry in re.findall(r"^\.\. \[\d+\] (.+?)(?=^\.\. |^\s*$|\Z)", text, re.S | re.M):
        if match := _ENTRY.match(" ".join(entry.split())):
            authors, title, where, year = match.groups()
            first = authors.split(",")[0].removesuffix(" et al.").split()[-1]
            key = _plain(first) + year + _plain(re.split(r"[\s:-]", title)[0])
            found[key] = f"{authors}, *{title}*, {where.replace('arXiv ', 'arXiv:')}."
    return found


def _plain(word: str) -> str:
    letters = unicodedata.normalize("NFKD", word.casefold())
    return re.sub("[^a-z0-9]", "", letters)


@functools.cache
def every() -> dict[str, str]:
    """Return all works by their keys: of all methods, and the others."""
    found = works(OTHERS)
    for method in METHODS.values():
        for key, text in works(inspect.getdoc(method) or "").items():
            found[key] = max(text, found.get(key, ""), key=len)  # some give a short title
    return found


def sources(method: Method) -> list[str]:
    """Return the keys of the works on a method and its parts, one of each.

    It is the work whose entry has a name of the label, or else the first of the docstring.

    Examples
    --------
    >>> from approx import parse
    >>> sources(parse("projected_top_k(by='channels')"))
    ['ribar2024sparq']
    """
    own = works(inspect.getdoc(type(method)) or "")
    names = re.findall(r"\b[A-Z]\w*[A-Za-z]", Label(method.label).choose(method))
    named = [key for key, text in own.items() if any(name in text for name in names)]
    keys = (named or [*own])[:1]
    for part in vars(method).values():
        if isinstance(part, Method):
            keys += sources(part)
    return list(dict.fromkeys(keys))


def cited(spec: str) -> str:
    """Return the label of a method with a mark that cites its works."""
    method = looks.method_of(spec)
    keys = [] if method is None else sources(method)
    label = looks.label(spec)
    blank = "" if label.endswith("）") else " "
    return f"{label}{blank}[@{'; @'.join(keys)}]" if keys else label


def numbered(text: str) -> str:
    """Return a text with a number for each citation, and with the works that it cites.

    A mark that no work has is no citation: a command may have one.
    """
    known = every()
    marks = {mark: sorted(mark.split("; @")) for mark in _MARK.findall(text)}
    keys = {key for each in marks.values() for key in each if known.keys() >= {*each}}
    numbers = {key: place for place, key in enumerate(sorted(keys), 1)}

    def links(match: re.Match[str]) -> str:
        each = marks[match[1]]
        shown = [f"[{numbers[key]}](#ref-{key})" for key in each if key in numbers]
        return f"[{', '.join(shown)}]" if len(shown) == len(each) else match[0]

    lines = []
    for key, number in numbers.items():
        authors, rest = known[key].split(",", 1)
        lines.append(f"{number}. [{authors}]{{#ref-{key}}},{rest}")
    return _MARK.sub(links, text).replace(LIST, "\n".join(lines))
