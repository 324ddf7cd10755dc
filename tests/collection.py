"""The numbers of the reference collection by a second route, and the table that both agree on.

`twin` follows the definitions of `analysis.ranks.reference_collection.COLUMNS` in extended
precision (long double), with plain NumPy: sums, sorts, loops and singular values by Jacobi
rotations. It takes arrays and shares no function with the project. ``make collection`` computes
every head by both routes and writes analysis/data/collection.csv if all digits that are stored are
the same.
"""

import math
import sys
from pathlib import Path

import numpy as np

EXTENDED = np.longdouble
PRICES = (4, 16, 64)


def singular_values(A):
    """One-sided Jacobi: rotate pairs of columns until all are orthogonal; their lengths, sorted.

    Pairs are taken as in a tournament, all of a round at once.
    """
    A = np.array(A if A.shape[0] >= A.shape[1] else A.T, EXTENDED)
    columns = A.shape[1]
    if columns % 2:
        A = np.concatenate([A, np.zeros((len(A), 1), EXTENDED)], axis=1)
    A = np.ascontiguousarray(A[:, np.argsort(-(A * A).sum(axis=0))].T)  # a row for each column
    count = len(A)
    if count < 2:
        return np.sqrt((A**2).sum(axis=1))[:columns]
    eps = np.finfo(EXTENDED).eps
    nothing = (eps * eps) * (A * A).sum()  # the square of a length that is rounding
    players = np.arange(count)
    for _ in range(40):
        off = EXTENDED(0)
        for _ in range(count - 1):
            p, q = players[: count // 2], players[count // 2 :][::-1]
            x, y = A[p], A[q]
            a, b, c = (x * x).sum(axis=1), (y * y).sum(axis=1), (x * y).sum(axis=1)
            least = np.sqrt(a * b)
            turn = (np.abs(c) > eps * least) & (np.minimum(a, b) > nothing)
            off = max(off, (np.abs(c) / np.where(turn, least, math.inf)).max())
            zeta = (b - a) / np.where(turn, 2 * c, 1)
            sign = np.where(zeta < 0, -1, 1)
            t = np.where(turn, sign / (np.abs(zeta) + np.sqrt(1 + zeta * zeta)), 0)
            cos = 1 / np.sqrt(1 + t * t)
            sin = cos * t
            A[p], A[q] = cos[:, None] * x - sin[:, None] * y, sin[:, None] * x + cos[:, None] * y
            players = np.concatenate([players[:1], players[-1:], players[1:-1]])
        if off < 64 * eps:
            break
    else:
        raise AssertionError(f"Jacobi rotations did not converge: {off}")
    return np.sort(np.sqrt((A * A).sum(axis=1)))[::-1][:columns]


def by_gram(A):
    """Singular values from the eigenvalues of the Gram matrix: enough for shares above 10⁻⁷."""
    G = (A @ A.T if A.shape[0] < A.shape[1] else A.T @ A).astype(np.float64)
    return np.sqrt(np.maximum(np.linalg.eigvalsh(G)[::-1], 0))


def rectangles(first, stop, begin, end):
    """The dyadic rectangles of a stretch of keys: (queries, keys)."""
    if end - begin < 2:
        return
    middle = (begin + end) // 2
    rows = [i for i in range(len(stop)) if middle < stop[i] <= end and first[i] < middle]
    if rows:
        yield rows, range(max(begin, *(first[i] for i in rows)), middle)
    yield from rectangles(first, stop, begin, middle)
    yield from rectangles(first, stop, middle, end)


def twin(q, k, v, scaling, first, stop):
    """All numbers of a head from its raw arrays; first and stop bound the keys of each query."""
    q, k, v = (np.asarray(x, EXTENDED) for x in (q, k, v))
    n, d = q.shape
    l = len(k)
    first, stop = [int(i) for i in first], [int(i) for i in stop]
    whole = all(i == 0 for i in first) and all(i == l for i in stop)
    x = (q @ k.T) * EXTENDED(scaling)
    p = np.zeros((n, l), EXTENDED)
    for i in range(n):
        seen = x[i, first[i] : stop[i]]
        e = np.exp(seen - seen.max())
        p[i, first[i] : stop[i]] = e / e.sum()
    every = np.concatenate([x[i, first[i] : stop[i]] for i in range(n)])
    entropy, participation, lost = [], [], []
    for i in range(n):
        row = p[i, first[i] : stop[i]]
        entropy.append(-sum(w * np.log(w) for w in row if w > 0))
        participation.append(1 / (row * row).sum())
        lost.append(abs(row - EXTENDED(1) / len(row)).sum() / 2)
    several = [i for i in range(n) if stop[i] - first[i] > 1]
    s = singular_values(p)
    found = {
        "n": n, "l": l, "d": d, "c": v.shape[1], "scaling": scaling,
        "logit_min": every.min(),
        "logit_max": every.max(),
        "logit_std": np.sqrt(((every - every.mean()) ** 2).mean()),
        "row_entropy": np.mean([entropy[i] / math.log(stop[i] - first[i]) for i in several]),
        "effective_keys": np.mean(np.exp(np.array(entropy))),
        "n_eff": np.median(participation),
        "stable_rank": (s * s).sum() / s[0] ** 2,
        "rank_1e-2": (s > EXTENDED("1e-2") * s[0]).sum(),
        "rank_1e-6": (s > EXTENDED("1e-6") * s[0]).sum(),
        "numerical_rank": (s > max(n, l) * EXTENDED(2) ** -52 * s[0]).sum(),
        "states_1e-2": math.nan, "states_1e-6": math.nan,
        "mean_tv": np.mean(lost),
    }  # fmt: skip
    if not any(first) and not whole:
        counts = {1e-2: 0, 1e-6: 0}
        for j in range(1, l):
            t = by_gram(p[[i for i in range(n) if stop[i] > j], :j])
            for share in counts:
                counts[share] = max(counts[share], int((t > share * t[0]).sum()))
        found |= {"states_1e-2": counts[1e-2], "states_1e-6": counts[1e-6]}
    truth = p @ v
    if whole:
        tails = [s]
    else:
        top = 1
        while top < max(stop):
            top *= 2
        blocks = rectangles(first, stop, 0, top)
        tails = [singular_values(p[np.ix_(rows, keys)]) for rows, keys in blocks]
    mass = p.sum(axis=0)
    for price in PRICES:

        def lost_on(chosen):
            """The two errors of softmax on some keys of each row."""
            tv, error = EXTENDED(0), EXTENDED(0)
            for i in range(n):
                keys = [j for j in chosen(i) if first[i] <= j < stop[i]]
                w = np.zeros(l, EXTENDED)
                if keys:
                    e = np.exp(x[i, keys] - x[i, keys].max())
                    w[keys] = e / e.sum()
                    tv += abs(w - p[i]).sum() / 2
                else:
                    tv += 1
                error += ((w @ v - truth[i]) ** 2).sum()
            return tv / n, np.sqrt(error / (truth**2).sum())

        def largest(i, price=price):
            return sorted(range(first[i], stop[i]), key=lambda j: (-x[i, j], j))[:price]

        def near(i, price=price):
            width = price - 1
            if whole:
                place = i * l // n
                band = range(place - width // 2, place + (width + 1) // 2)
                return sorted({0, *(j for j in band if 0 <= j < l)})
            return sorted({first[i], *range(max(stop[i] - width, first[i]), stop[i])})

        best = sorted(range(l), key=lambda j: (-mass[j], j))[:price]
        m = price * n // (n + l)
        tail = sum((t[m:] ** 2).sum() for t in tails)
        tv, output = lost_on(largest)
        found |= {
            f"top_k_tv_{price}": tv,
            f"top_k_output_{price}": output,
            f"columns_tv_{price}": lost_on(lambda i, best=best: best)[0],
            f"window_tv_{price}": lost_on(near)[0],
            f"rank_frobenius_{price}": np.sqrt(tail / (p * p).sum()),
        }
    return {name: float(number) for name, number in found.items()}


def of(x):
    """The twin of a head of the collection."""
    scaling = x.q.shape[1] ** -0.5 if x.scaling is None else x.scaling
    return twin(x.q, x.k, x.v, scaling, x.mask.first, x.mask.stop)


def main(names):
    """Compare the two routes on these heads, or on all and write the table."""
    from analysis.ranks import reference_collection

    numbers, wrong = {}, 0
    for name in names or reference_collection.NAMES:
        x = reference_collection.head(name)
        numbers[name], slow = reference_collection.row(x), of(x)
        for column, number in numbers[name].items():
            ours, theirs = (
                reference_collection.printed(number),
                reference_collection.printed(slow[column]),
            )
            if ours != theirs:
                wrong += 1
                print(f"{name}, {column}: {number!r}, by the other route {slow[column]!r}")
        print(f"{name}: {len(slow)} numbers", flush=True)
    if wrong:
        return f"{wrong} numbers differ: nothing is written"
    if not names:
        path = Path(__file__).parent.parent / "analysis" / "data" / "collection.csv"
        reference_collection.write(path, numbers)
        print(f"{len(numbers)} heads, both routes agree: {path.name} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
