"""Slow twins that answer queries from what they keep, with every read and multiply-add counted.

A twin is made of the keys and values (`Text`), with what is done once, and answers one query that
sees the keys first, …, stop − 1. It is written from the definitions in the docstrings of the
methods and shares no code with them. Where inputs or draws decide what is read, it takes what is
dearest. What the twin of an oracle is told by its search costs nothing.
"""

import dataclasses
import itertools
import math

import numpy as np
from counting import Counter


@dataclasses.dataclass
class Row:
    """A query, the keys that it sees, and its place among all keys."""

    q: object
    first: int
    stop: int
    place: int
    back: bool
    head: int = 0

    @property
    def keys(self):
        return range(self.first, self.stop)


class Text:
    """Queries, keys and values, and the rows that are answered together."""

    def __init__(self, Q, K, V, rows, counter):
        self.counter = counter
        self.Q = counter.register(Q)
        self.K, self.V = counter.memory(K), counter.memory(V)
        # while a text is read, its keys are at hand one by one
        self.new_keys, self.new_values = counter.register(K), counter.register(V)
        self.rows = [Row(self.Q[i], *row) for i, row in enumerate(rows)]
        (self.l, self.d), self.c, self.n = K.shape, V.shape[1], len(rows)


def rows_of(mask, n, l):
    """Return (first, stop, place, whether it looks back) of n queries; a mask is a word."""
    if mask == "full":
        return [(0, l, i * l // n, False) for i in range(n)]
    width = l if mask == "causal" else int(mask.removeprefix("window "))
    places = range(l - n, l)
    return [(max(p + 1 - width, 0), p + 1, p, True) for p in places]


def arrays(n, l, d, c, seed=0):
    """Return Q, K, V."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, shape) for shape in ((n, d), (l, d), (l, c))]


def count(twin, n, l, d, c, mask):
    """Return the reads of the dearest query that is decoded, and all multiply-adds of a prefill."""
    Q, K, V = arrays(l, l, d, c)

    def prefill(Q):
        counter = Counter()
        text = Text(Q, K, V, rows_of(mask, len(Q), l), counter)
        answer, reads = twin(text), []
        for row in text.rows:
            before = counter.reads
            more = answer(row)
            reads.append(counter.reads - before + (more if isinstance(more, float) else 0))
        return max(reads), counter.multiply_adds

    return prefill(Q)[0], prefill(Q[:n] if n <= l else arrays(n, l, d, c)[0])[1]


def count_group(twin, group, l, d, c, mask, own=False):
    """Return what the dearest query of a group of heads reads, if numbers are read once.

    The heads have one twin, or each its own if what is kept is fitted to its queries.
    """
    _, K, V = arrays(l, l, d, c)
    rows, counter = rows_of(mask, l, l), Counter()
    answers = []
    for head in range(group):
        counter.owner = head if own else 0
        text = Text(arrays(l, l, d, c, seed=head)[0], K, V, rows, counter)
        answers.append((text, twin(text) if own or not head else answers[0][1]))
    totals = []
    for i in range(l):
        passes = []
        for head, (text, answer) in enumerate(answers):
            # what is made for an answer has the same names in every head that shares it
            counter.passes, counter.owner, counter.made = [], head if own else 0, 10**3
            answer(dataclasses.replace(text.rows[i], head=head))
            passes.append(counter.passes)
        together = itertools.zip_longest(*passes, fillvalue=set())
        totals.append(sum(len(set.union(*same)) for same in together))
    return max(totals)


def of_text(make):
    """Let a function be given its sizes at first, and the text later."""
    return lambda *sizes, **named: lambda text: make(text, *sizes, **named)


# What answers from exact keys


def attend(text, keys, q):
    """Return Σ e^{q·k} v and Σ e^{q·k} over some keys."""
    keys = list(keys)
    weights = np.exp(text.K[keys] @ q)
    return weights @ text.V[keys], weights.sum()


def some(row, k):
    """Return k keys that a row sees, or all of them; the heads of a group choose others."""
    return turned(list(row.keys), row.head * int(k))[: int(k)]


def turned(x, by):
    by %= max(len(x), 1)
    return x[by:] + x[:by]


def told(k):
    """k keys that an oracle names, or that are drawn."""
    return lambda text: lambda row: some(row, k)


@of_text
def sliding_window(text, width):
    def keys(row):
        if row.back:
            return [j for j in row.keys if -width < j - row.place <= 0]
        left, right = width // 2, width - width // 2
        return [j for j in row.keys if -left <= j - row.place < right]

    return keys


@of_text
def sink_window(text, k, sinks):
    near = sliding_window(k - sinks)(text)
    return lambda row: sorted(
        set(range(row.first, min(row.first + sinks, row.stop))) | {*near(row)}
    )


def chunk(size):
    return lambda text: lambda row: [j for j in row.keys if j // size == row.place // size]


@of_text
def strided(text, k):
    def keys(row):
        stride = math.ceil((row.stop - row.first) / k)
        return [j for j in row.keys if (j - row.place) % stride == 0]

    return keys


@of_text
def pages(text, k, size, by, current=False):
    """The fullest pages, after the summary of every page that is seen was looked at."""
    starts = range(0, text.l, size)
    parts = {"box": 2, "mean": 1, "deviation": 2, "mass": 0}[by]
    summaries = text.counter.memory(np.zeros((len(starts), parts, text.d)))

    def keys(row):
        seen = [[j for j in row.keys if j // size == p] for p in range(len(starts))]
        scored = [p for p, page in enumerate(seen) if page]
        own = [row.place // size] if current else []
        for p in scored if len(scored) > k // size else []:
            if p not in own:
                summaries[p] @ row.q
        others = sorted((p for p in scored if p not in own), key=lambda p: -len(seen[p]))
        others = turned(others, row.head * (k // size))
        return [j for p in (own + others)[: k // size] for j in seen[p]]

    return keys


@of_text
def vertical_slash(text, k, queries, by="last"):
    if by == "last":
        for row in text.rows[-queries:]:
            text.new_keys[list(row.keys)] @ row.q
    return lambda row: some(row, k)


@of_text
def columns(text, k, by, window=32):
    """One set of keys, chosen once."""
    scores_of_keys(text, by, list(range(text.l)), text.rows, window)
    if by == "expected":
        moments(text, text.rows)
    alike = by in ("key_norm", "key_diff", "leverage", "cur")  # for all heads of a group
    return lambda row: some(dataclasses.replace(row, head=0) if alike else row, k)


def scores_of_keys(text, by, keys, come, window):
    K = text.new_keys[keys]
    if by in ("snapkv", "critical"):
        for row in come[-window:]:
            seen = keys if len(keys) < text.l else list(row.keys)
            text.new_keys[seen] @ row.q
    elif by == "expected":
        matrix, mean = text.counter.register(np.eye(text.d)), text.counter.register(np.ones(text.d))
        for key in K:
            (matrix @ key) @ key
            key @ mean
    elif by == "key_diff":
        K @ text.counter.register(np.ones(text.d))
    elif by == "leverage":
        K.T @ K
        text.counter.decomposition(text.d)
        for _ in keys:
            text.counter.inverse_times(text.d)


def moments(text, rows):
    for row in rows:
        row.q[:, None] @ row.q[None, :]


RUNNING = "h2o", "tova", "output"  # every query scores the keys it reads


@of_text
def evicted(text, k, by, block=1, window=32):
    """A cache of k keys that is cut to k − block before a key comes for which it has no room."""
    caches, cache, looked, fitted = [], [], {}, 0
    for place in range(max(row.place for row in text.rows) + 1):
        if place >= k and (place - k) % block == 0:
            of_block = [r for r in text.rows if place <= r.place < place + block]
            low = min((r.first for r in of_block), default=0)
            cache = [j for j in cache if j >= low]
            if len(cache) > k - block:
                come = [r for r in text.rows if r.place < place]
                if by == "expected":
                    moments(text, come[fitted:])
                    fitted = len(come)
                if by not in RUNNING:
                    scores_of_keys(text, by, cache, come, window)
                looked[place] = numbers_looked_at(by, len(cache), len(come), window, text)
                cache = cache[len(cache) - (k - block) :]
        cache = [*cache, place]
        caches.append(list(cache))
    sums = text.counter.memory(np.zeros(text.l))

    def keys(row):
        kept = [j for j in caches[row.place] if j in row.keys]
        if by == "h2o":
            sums[kept] + 0.0
        start = row.place if row.place < k else row.place - (row.place - k) % block
        return kept, float(looked.get(start, 0)) / block

    return keys


def numbers_looked_at(by, keys, come, window, text):
    if by in ("key_norm", "cur"):
        return keys  # a norm was kept of each
    d, last = text.d, min(come, window)
    more = {"expected": d * d + d, "snapkv": last * d, "critical": last * d + keys}.get(by, 0)
    once_more = keys * text.c if by == "output" else 0  # the values
    return once_more if by in ("mass", *RUNNING) else keys * d + more


@of_text
def guarded(text, chosen, size, bits):
    """All keys, after boxes and codes of pages could not tell that those of a selection will do."""
    keys = chosen(text)
    pages = -(-text.l // size)
    boxes = text.counter.memory(np.zeros((pages, 2, text.d)))
    depths = text.counter.memory(np.zeros((pages, text.d)))
    codes = text.counter.memory(np.zeros((pages, size, text.d)))

    def found(row):
        keys(row)
        for page in range(row.first // size, (row.stop - 1) // size):
            text.counter.register(np.asarray(boxes[page] + 0.0)[0]) @ row.q  # how far
            if bits:
                depths[page] + 0.0
                codes[page] @ row.q
        return list(row.keys)

    return found


@of_text
def projected_top_k(text, k, r, by):
    logits = compressed(by, r)(text)

    def keys(row):
        logits(row)
        return some(row, k)

    return keys


@of_text
def by_places(text, kept_keys, directions, rounds=1):
    """A sorted list or buckets of all keys, and directions of which a query and a key have one."""
    count, width = directions(text)
    omega = text.counter.memory(np.ones((rounds * count, width)))
    places = text.counter.memory(np.zeros((rounds, text.l)))
    for key in text.new_keys:
        text.counter.register(omega) @ padded(key, width)

    def keys(row):
        omega @ padded(row.q, width)
        np.sort(places, axis=1)
        return some(row, kept_keys * rounds)

    return keys


def padded(x, width):
    return np.concatenate([x, np.zeros(width - len(x))])


def smyrf(size, rounds=1):
    return by_places(size, lambda text: (1, text.d + 2), rounds)


def sorted_lsh(size, hashes):
    return by_places(size, lambda text: (hashes, text.d))


def reformer(size, rounds=1):
    return by_places(2 * size, lambda text: (max(1, round(text.l / size / 2)), text.d), rounds)


@of_text
def exact_keys(text, chosen):
    """Answer from the keys that a selection names."""
    keys = chosen(text)

    def answer(row):
        found = keys(row)
        found, more = found if isinstance(found, tuple) else (found, None)
        if found:
            row.held = len(found)
            y, total = attend(text, found, row.q)
            row.y = np.asarray(y) / float(total)
        return more

    return answer


# What answers from the logits of compressed keys


@of_text
def compressed(text, by, r):
    """Logits of a query with all keys that it sees, from r numbers of each."""
    K, counter, d = text.new_keys, text.counter, text.d
    if by == "channels":

        def of_channels(row):
            largest = np.argsort(-np.abs(np.asarray(row.q)), kind="stable")[:r]
            return text.K[np.ix_(list(row.keys), largest)] @ row.q[largest]

        return of_channels
    axes = counter.memory(np.eye(d)[:, :r])
    K.T @ K
    counter.decomposition(d)
    if by == "svd":
        text.Q.T @ text.Q
        counter.decomposition(d)  # the other factor, and the product, and its own
        counter.register(np.eye(d)) @ counter.register(np.eye(d))
        counter.decomposition(d)
        for _ in range(2 * r):
            counter.inverse_times(d)
    short = counter.memory(K @ counter.register(axes))
    return lambda row: short[list(row.keys)] @ (row.q @ axes)


@of_text
def of_compressed(text, by, r):
    logits = compressed(by, r)(text)

    def answer(row):
        weights = np.exp(logits(row))
        row.y = np.asarray(weights @ text.V[list(row.keys)]) / float(weights.sum())

    return answer


@of_text
def few_channels(text, r, recent):
    """Answer from r channels of all keys but the last; the heads of a group choose others."""

    def answer(row):
        seen = list(row.keys)
        thin, whole = np.split(seen, [max(len(seen) - recent, 0)])
        kept = turned(list(range(text.d)), row.head * r)[:r]
        logits = text.K[np.ix_(thin, kept)] @ row.q[kept], text.K[whole] @ row.q
        weights = np.exp(np.concatenate(logits))
        weights @ text.V[seen], weights.sum()

    return answer


@of_text
def coded(text, maps=(), scales=0, of_group=0, group=None, recent=0):
    """Answer from codes of all keys but the last, and from the scales of these.

    `maps` turns d into the shapes of what maps a query and a key, one after the other, where None
    is a transform with random signs; without any there are d codes, the key's own numbers.
    """
    counter, d = text.counter, text.d
    shapes = maps(d) if maps else []
    D = 1 << (d - 1).bit_length()
    per_key, per_group = ({"d": d, "2d": 2 * d}.get(x, x) for x in (scales, of_group))
    held = [counter.memory(np.ones(shape or D)) for shape in shapes]
    codes = counter.memory(np.zeros((text.l, sum(len(x) for x in held) if held else d)))

    def mapped(x, parameters):
        for shape, some in zip(shapes, parameters):
            if shape:
                yield some @ x
            else:
                yield counter.transform(some * padded(x, D))

    for key in text.new_keys:
        list(mapped(key, [counter.register(x) for x in held]))

    def answer(row):
        seen = list(row.keys)
        rounded, exact = np.split(seen, [max(len(seen) - recent, 0)])
        groups = len({j // (group or text.l) for j in rounded})
        counter.memory(np.zeros(len(rounded) * per_key + groups * per_group)) + 0.0
        query = np.concatenate(list(mapped(row.q, held))) if held else row.q
        logits = codes[rounded] @ query, text.K[exact] @ row.q
        weights = np.exp(np.concatenate(logits))
        weights @ text.V[seen], weights.sum()

    return answer


@of_text
def scaled_values(text, scales):
    """Answer from all keys and from values with scales of their own."""

    def answer(row):
        text.counter.memory(np.zeros((len(row.keys), scales(text.c)))) + 0.0
        attend(text, row.keys, row.q)

    return answer


# What answers from a state


@of_text
def state(text, features, per_key=None, *, sums=True, once=()):
    """Answer from the sums over keys of features times values.

    `features` returns (columns, parameters, map of a query and these); `per_key` is a map of a
    key, by default the same with parameters that are at hand.
    """
    for step in once:
        step(text)
    m, held, mapped = features(text)
    ready = [text.counter.register(x) for x in held]
    keyed = per_key(text) if per_key else lambda key: text.counter.register(mapped(key, *ready))
    products, alone = [], []
    for key, value in zip(text.new_keys, text.new_values):
        phi = keyed(key)
        products.append(phi[:, None] @ value[None, :])
        alone.append(phi)

    def answer(row):
        phi = mapped(row.q, *held)
        seen = text.counter.memory(sum(np.asarray(products[j]) for j in row.keys))
        y = phi @ seen
        if sums:
            total = phi @ text.counter.memory(sum(np.asarray(alone[j]) for j in row.keys))
            row.y = np.asarray(y) / float(total)
        row.phi, row.features = phi, alone
        assert phi.shape == (m,)

    return answer


@of_text
def linear(text, count, per=1):
    """Features that are functions of ω·x."""
    frequencies = text.counter.memory(np.ones((count, text.d)))
    return count * per, [frequencies], lambda x, w: np.concatenate([np.exp(w @ x)] * per)


@of_text
def coordinates(text, per=1, feature=np.exp):
    """Features that are functions of one coordinate each."""
    return text.d * per, [], lambda x: np.concatenate([feature(x)] * per)


@of_text
def hybrid(text, pairs, signs):
    """Columns of P and T, once as they are and once per sign: 2·2·pairs·(1 + signs)."""
    omega = text.counter.memory(np.ones((2 * pairs + signs, text.d)))

    def mapped(x, omega):
        z = omega @ x
        waves = np.concatenate([z[: 2 * pairs], -z[: 2 * pairs]])
        return np.concatenate([waves, *(waves * np.sign(s) for s in z[2 * pairs :])])

    return 4 * pairs * (1 + signs), [omega], mapped


@of_text
def by_search(text, columns):
    """A query's features, which an oracle knows, as it does those of the keys."""
    return columns, [], lambda x: text.counter.register(np.ones(columns))


@of_text
def products_of_forms(text, m, degree, width=lambda d: d + 1):
    """Features that are products of linear forms of (x, 1)."""
    wide = width(text.d)
    forms = text.counter.memory(np.ones((degree, m, wide)))

    def mapped(x, forms):
        x, found = padded(x, wide), 1.0
        for form in forms:
            found = found * (form @ x)
        return found

    return m, [forms], mapped


@of_text
def squared_forms(text, inner, degree):
    _, forms, mapped = products_of_forms(inner, degree // 2)(text)
    r, s = np.triu_indices(inner)

    def squares(x, forms):
        phi = mapped(x, forms)
        return phi[r] * phi[s]

    return len(r), forms, squares


@of_text
def maclaurin(text, m, exact):
    """Products of h + 1 forms, the mean of the geometric law, and monomials of degree < h."""
    fixed = math.comb(text.d + exact - 1, text.d) if exact else 0
    _, forms, mapped = products_of_forms(m - fixed, exact + 1, lambda d: d)(text)
    rest = text.counter.register(np.ones(fixed))
    return m, forms, lambda x, forms: np.concatenate([mapped(x, forms), rest])


@of_text
def tensor_sketch(text, m, degree):
    buckets = text.counter.memory(np.zeros((degree, text.d + 1)))
    signs = text.counter.memory(np.ones((degree, text.d + 1)))

    def mapped(x, where, sign):
        x, spectrum = padded(x, text.d + 1), 1.0
        for mode in range(degree):
            z = np.zeros(m)
            for c in range(text.d + 1):
                bucket = where[mode, c : c + 1] + 0.0
                z[int(bucket[0])] += float(sign[mode, c : c + 1] @ x[c : c + 1])
            spectrum = spectrum * text.counter.transform(z)
        return text.counter.transform(spectrum)

    return m, [buckets, signs], mapped


@of_text
def monomials(text, degree):
    """All products of at most so many coordinates, whose coefficients are in the state."""
    powers = [p for p in itertools.product(range(degree + 1), repeat=text.d) if sum(p) <= degree]

    def mapped(x):
        return text.counter.register([np.prod(np.asarray(x) ** p) for p in powers])

    return len(powers), [], mapped


@of_text
def polynomial_of_logits(text, degree):
    coefficients = text.counter.memory(np.ones(degree + 1))

    def answer(row):
        x = text.K[list(row.keys)] @ row.q
        given, y = coefficients + 0.0, 0.0
        for a in given[1:]:
            y = y + a
            text.counter.multiply_adds += len(x)
        (np.exp(x) + y) @ text.V[list(row.keys)]

    return answer


def dense(m, form):
    """Second moments and the matrices T and A of FAVOR#, and what a key is mapped by."""

    def once(text):
        counter, d = text.counter, text.d
        square, one = counter.register(np.eye(d)), counter.register(np.ones((1, d)))
        text.Q.T @ text.Q
        text.new_keys.T @ text.new_keys
        one.T @ one  # of both means
        counter.decomposition(d)  # of the mean of (q + k)(q + k)ᵀ
        if form == "aderf":
            one @ square, one @ square  # the mean query and key in their frames
            # M_q; √M_q M_k √M_q; the geometric mean of both; and their powers
            for products in (2, 2 + 1, 2 + 2):
                counter.decomposition(d)
                for _ in range(products):
                    square @ square
            for _ in range(4 + 2):  # moments in the new frames, and the map of either side
                square @ square
        counter.register(np.ones((m, d))) @ square  # a query's map

    def per_key(text):
        omega, square = (text.counter.register(np.ones((r, text.d))) for r in (m, text.d))
        return lambda key: np.exp(omega @ (square @ key if form == "aderf" else key))

    return state(linear(m), per_key, once=[once])


def points(text):
    return np.concatenate([np.asarray(text.Q), np.asarray(text.new_keys)])


@of_text
def centroids(text, rank):
    """A start of k-means and ten iterations, among queries and keys."""
    centres = text.counter.register(np.ones((rank, text.d)))
    for _ in range(11):
        text.counter.register(points(text)) @ centres.T


@of_text
def leverage(text, among):
    """Ridge leverage scores of some points, from the decomposition of their kernel matrix."""
    x = text.counter.register(among(text))
    G = x @ x.T
    text.counter.decomposition(len(x))
    G**2 @ text.counter.register(np.ones(len(x)))


@of_text
def thinned(text, rank):
    """A power of two of keys by kernel thinning; the last round has one bucket of 2·rank."""
    rounds = int(math.log2(text.l / rank))
    for left in range(rounds, 0, -1):
        size = max(2, rank * 2**left // 4 ** (left - 1))
        for _ in range(rank * 2**left // size):
            bucket = text.new_keys[:size]
            bucket @ bucket.T
    return told(rank)(text)


# Landmarks


@of_text
def kernels(text, rank):
    """A query's kernels with landmarks; their inverse is in the features of the keys."""
    landmarks = text.counter.memory(np.ones((rank, text.d)))
    return rank, [landmarks], lambda x, landmarks: np.exp(landmarks @ x)


@of_text
def inverse_kernels(text, rank):
    landmarks = text.counter.register(np.ones((rank, text.d)))

    def mapped(key):
        text.counter.inverse_times(rank)
        return np.exp(landmarks @ key)

    return mapped


@of_text
def gram(text, rank):
    landmarks = text.counter.register(np.ones((rank, text.d)))
    landmarks @ landmarks.T
    text.counter.decomposition(rank)


@of_text
def kernels_of_the_past(text, rank):
    """A query has its own part of the triangular factor, which it reads."""
    landmarks = text.counter.memory(np.ones((rank, text.d)))
    factor = text.counter.memory(np.ones((rank, rank)))
    return rank, [landmarks, factor], lambda x, landmarks, factor: factor @ np.exp(landmarks @ x)


@of_text
def interpolation(text, rank, tried=1, probes=0):
    """Pivots of a Cholesky decomposition and weights of all keys, perhaps at many scales."""
    K, counter = text.new_keys, text.counter
    rows = min(probes, text.l)
    K[:rows] @ K.T
    for _ in range(tried):
        pivots = counter.register(np.ones((rank, text.d)))
        K @ pivots.T
        for _ in range(text.l):
            counter.inverse_times(rank)  # what pivots leave of the key
            counter.inverse_times(rank)  # its weights
        if rows:
            near = K[:rows] @ pivots.T
            near @ counter.register(np.ones((rank, text.l)))


def at_hand(rank):
    """The features of a key, which were found before."""
    return lambda text: lambda key: text.counter.register(np.ones(rank))


@of_text
def projection(text, rank, by="greedy", block=None):
    """Rank keys with values and weights of a fit to what came before, and the keys of a block."""
    counter, d, c = text.counter, text.d, text.c
    held, fits = counter.memory(np.ones((rank, d + c + 1))), {}
    full = not text.rows[0].back
    starts = {row.place // block * block for row in text.rows} if not full else {text.l}
    for t in sorted(starts):
        rows = text.rows if full else [r for r in text.rows if r.place // block * block == t]
        low = min(r.first for r in rows)
        past = text.rows if full else [r for r in text.rows if low < r.stop <= t]
        l, kept = t - low, min(rank, t - low)
        fits[t] = kept, 0.0
        if kept == l:
            continue
        P = counter.register(np.ones((len(past) or l, d))) @ counter.register(np.ones((d, l)))
        if by != "h2o":
            P.T @ P
        if by == "leverage":
            counter.decomposition(l)
        for _ in range({"qr": kept, "greedy": 2 * kept}.get(by, 0)):
            P[0][:l, None] @ P[0][None, :l]
        columns = P[:, :kept]
        for right in (P[:, 0], P):  # weights, then values
            columns.T @ columns
            columns.T @ right
            counter.decomposition(kept)
            for _ in range(right[0].size):
                counter.inverse_times(kept)
        counter.register(np.ones((kept, l))) @ counter.register(np.ones((l, c)))
        if not full:
            fits[t] = kept, (l * (d + c) + len(past) * d) / block

    def answer(row):
        t = text.l if full else row.place // block * block
        kept, more = fits[t]
        held[:kept, 0] + 0.0
        held[:kept, 1 : 1 + d] @ row.q
        counter.register(np.ones(kept)) @ held[:kept, 1 + d :]
        near = [] if full else [j for j in row.keys if j >= t]
        if near:
            attend(text, near, row.q)
        return float(more)

    return answer


# Mechanisms


def flowformer(text):
    """Both flows of a query, whose row is used as it is."""
    counter, K = text.counter, text.new_keys
    sums, ratios = counter.memory(np.ones(text.d)), counter.memory(np.ones(text.d))
    seen = counter.memory(np.ones((text.d, text.c)))
    for key, value in zip(K, text.new_values):
        key @ counter.register(np.ones(text.d))  # O
        key @ counter.register(np.ones(text.d))  # Ô
        key[:, None] @ value[None, :]

    def answer(row):
        row.q @ sums
        row.q @ ratios
        row.q @ seen

    return answer


@of_text
def linformer(text, rank, drawn):
    E = text.counter.register(np.ones((rank, text.l)))
    if drawn:
        E @ text.new_keys
        E @ text.new_values
    keys, values = (text.counter.memory(np.ones((rank, w))) for w in (text.d, text.c))
    return lambda row: np.exp(keys @ row.q) @ values


@of_text
def nystromformer(text, rank, iterations):
    counter = text.counter
    landmarks = counter.register(np.ones((rank, text.d)))
    landmarks @ landmarks.T
    if iterations is None:
        counter.decomposition(rank)
    square = counter.register(np.ones((rank, rank)))
    for _ in range(4 * (iterations or 0)):
        square @ square
    seen = (landmarks @ text.new_keys.T) @ text.new_values
    seen = counter.memory(square @ seen)
    keys = counter.memory(landmarks)
    return lambda row: np.exp(keys @ row.q) @ seen


@of_text
def flash(text, size):
    """The query's chunk, and the state of the other keys, or of earlier chunks."""
    for key, value in zip(text.new_keys, text.new_values):
        key[:, None] @ value[None, :]
    seen = text.counter.memory(np.ones((text.d, text.c)))

    def answer(row):
        attend(text, chunk(size)(text)(row), row.q)
        if not row.back or any(j // size < row.place // size for j in row.keys):
            row.q @ seen

    return answer


@of_text
def randomized_attention(text, samples):
    def answer(row):
        keys, weights = list(row.keys), 0.0
        text.K[keys] @ row.q
        for _ in range(samples):
            drawn = row.q + text.K[keys[0]]
            weights = weights + np.exp(text.K[keys] @ drawn)
        weights @ text.V[keys]

    return answer


@of_text
def importance(text, m):
    means = text.counter.register(np.ones((min(m, text.n, text.l), text.d)))
    text.counter.register(np.ones((m, text.d))) @ means.T


@of_text
def eva(text, m, chosen):
    """Groups by their centres and states, from which the exact keys are taken."""
    counter, keys = text.counter, chosen(text)
    for key, value in zip(text.new_keys, text.new_values):
        counter.register(np.ones(text.d)) @ key  # its share of the group
        counter.register(np.ones((1, 1))) @ value[None, :]
    shares = counter.memory(np.ones(text.l))
    centres, states = (counter.memory(np.ones((m, w))) for w in (text.d, text.c))

    def answer(row):
        size = math.ceil(text.l / m)
        groups = [
            g
            for g in range(m)
            if not row.back or all(j in row.keys for j in range(g * size, (g + 1) * size))
        ]
        weights = np.exp(centres[groups] @ row.q)
        weights @ states[groups]
        exact = list(keys(row))
        values = text.V[exact] + 0.0
        np.exp(text.K[exact] @ row.q) @ values
        (shares[exact] + 0.0) @ values

    return answer


# Blocks


def cover(lo, hi, start, size):
    """Return the largest blocks (size, start) of leaves, aligned, that make up lo, …, hi − 1."""
    if lo >= hi or start >= hi or start + size <= lo:
        return []
    if lo <= start and start + size <= hi:
        return [(size, start)]
    half = size // 2
    return cover(lo, hi, start, half) + cover(lo, hi, start + half, half)


@of_text
def hierarchical(text, rank, leaf, basis, sinks=0, space="kernel"):
    while leaf < 2 * rank:
        leaf *= 2
    counter, l, d, c = text.counter, text.l, text.d, text.c
    count = max(math.ceil((l - sinks) / leaf), 0)
    root = 1 << max(count - 1, 0).bit_length()

    def blocks(row):
        """The blocks of whole leaves that are seen and are not the query's own."""
        whole = [
            b
            for b in range(count)
            if all(j in row.keys for j in range(sinks + b * leaf, min(sinks + (b + 1) * leaf, l)))
        ]
        own = (row.place - sinks) // leaf if row.place >= sinks else None
        parts = [[b for b in whole if own is None or b < own], []]
        if own in whole:
            parts[1] = [b for b in whole if b > own]
        found = [cover(p[0], p[-1] + 1, 0, root) for p in parts if p]
        return [block for part in found for block in part]

    def of_block(block):
        size, start = block
        return range(sinks + start * leaf, min(sinks + (start + size) * leaf, l))

    taken = {block for row in text.rows for block in blocks(row)}
    if basis == "svd":
        for block in taken:
            of_keys = list(of_block(block))
            counter.register(np.ones((rank, len(of_keys)))) @ text.new_values[of_keys]
    elif taken:
        summaries(text, rank, basis, sinks, count, max(size for size, _ in taken))
    width = {"svd": 0, "mean": 2 * d, "pivots": d}[basis]

    def answer(row):
        far = blocks(row)
        near = sorted(set(row.keys) - {j for block in far for j in of_block(block)})
        if near:
            attend(text, near, row.q)
        for _ in far:
            weights = counter.register(np.ones(rank))
            if width:
                wide = np.concatenate([row.q, row.q**2])[:width]
                weights = np.exp(counter.memory(np.ones((rank, width))) @ wide)
            weights @ counter.memory(np.ones((rank, c)))
            if space == "kernel":
                weights @ counter.memory(np.ones(rank))

    return answer


def summaries(text, rank, basis, sinks, count, largest):
    """Summarise every leaf, and merge blocks two by two up to the largest that is taken."""
    counter, d, c = text.counter, text.d, text.c
    if basis == "pivots":
        pivots = counter.register(np.ones((rank, d)))
        for key, value in zip(text.new_keys[sinks:], text.new_values[sinks:]):
            interpolate(counter, rank, pivots, key)
            counter.register(np.ones((rank, 1))) @ value[None, :]
    size = 1
    while size < largest:
        for _ in range(count // 2):
            if basis == "mean":
                for _ in range(rank):
                    shares, two = counter.register(np.ones(2)), counter.register(np.ones((2, d)))
                    shares @ two  # the mean of two runs
                    shares @ two  # their variance
                continue
            pivots, total = counter.register(np.ones((rank, d))), np.ones((2 * rank, c + 1))
            for _ in range(2 * rank):
                interpolate(counter, rank, pivots, counter.register(np.ones(d)))
            counter.register(np.ones((rank, 2 * rank))) @ counter.register(total)
        count -= count // 2
        size *= 2


def interpolate(counter, rank, pivots, key):
    np.exp(pivots @ key)
    counter.inverse_times(rank)  # what pivots leave of it
    counter.inverse_times(rank)  # its weights


# What is made of parts


def running_sum(text):
    """The sums of all values, and their number."""
    total, number = text.counter.memory(text.new_values), text.counter.memory(np.ones(1))

    def answer(row):
        seen = text.counter.memory(np.asarray(total)[list(row.keys)].sum(axis=0))
        row.y = np.asarray(seen / number) / len(row.keys)

    return answer


def nothing(text):
    return lambda row: None


@of_text
def replaced(text, low, chosen, entry=True):
    """Exact keys in place of a low-rank part, whose entries there are taken off.

    In a prefill the features of the keys are at hand. A decoder makes them again, from keys and
    parameters that it reads anyway.
    """
    keys, of_low = chosen(text), low(text)

    def answer(row):
        of_low(row)
        found = keys(row)
        if found:
            attend(text, found, row.q)
        for j in found if entry else []:
            row.phi @ row.features[j]

    return answer


@of_text
def drawn_beside(text, chosen, k, sizes=None):
    """The keys of a selection, and k of the others with a weight each."""
    keys = chosen(text)
    boxes = text.counter.memory(np.ones((math.ceil(text.l / 16), 2, text.d)))

    def found(row):
        held = keys(row)
        if sizes == "bound":
            boxes[sorted({j // 16 for j in row.keys})].reshape(-1, text.d) @ row.q
        rest = [j for j in row.keys if j not in held]
        return held + turned(rest, row.head * k)[:k]

    return found


@of_text
def centred(text, twin, queries=True):
    """A query is shifted by a mean; a key meets that mean for the scale of its column."""
    if queries:
        text.new_keys @ text.counter.register(np.ones(text.d))
    answer = twin(text)

    def shifted(row):
        if queries:
            row.q - text.counter.memory(np.ones(text.d), own=row.head)
        return answer(row)

    return shifted


# What a spec's twin is, given n, l, d and sizes that suit them: h about l/2, s about l/4.
TWINS = {
    "zero()": lambda x: nothing,
    **dict.fromkeys(("one()", "constant()", "uniform()"), lambda x: running_sum),
    "trigonometric(m=6)": lambda x: state(linear(3, 2)),
    "dense_exponential(m=3)": lambda x: dense(3, "aderf"),
    "dense_exponential(m=3, form='sderf')": lambda x: dense(3, "sderf"),
    "angular_hybrid(m=24, signs=2)": lambda x: state(hybrid(2, 2)),
    "random_maclaurin(m=5)": lambda x: state(maclaurin(5, 0)),
    "random_maclaurin(m=8, exact=2)": lambda x: state(maclaurin(8, 2)),
    "product_sketch(m=3, degree=3)": lambda x: state(products_of_forms(3, 3)),
    "tensor_sketch(m=5, degree=3)": lambda x: state(tensor_sketch(5, 3)),
    "squared_sketch(inner=3, degree=4)": lambda x: state(squared_forms(3, 4)),
    "truncated_svd(rank=2)": lambda x: state(by_search(2)),
    "truncated_svd(rank=2, space='attention')": lambda x: state(by_search(2), sums=False),
    "nystrom(rank=2)": lambda x: state(kernels(2), inverse_kernels(2), once=[gram(2)]),
    "nystrom(rank=2, block=3)": lambda x: state(kernels_of_the_past(2), once=[gram(2)]),
    "nystrom(rank=2, landmarks='kmeans')": lambda x: state(
        kernels(2), inverse_kernels(2), once=[gram(2), centroids(2)]
    ),
    "nystrom(rank=2, landmarks='leverage')": lambda x: state(
        kernels(2), inverse_kernels(2), once=[gram(2), leverage(points)]
    ),
    "coreset(rank=2, tau=1.0)": lambda x: state(kernels(2), at_hand(2), once=[interpolation(2)]),
    "coreset(rank=2)": lambda x: state(
        kernels(2), at_hand(2), once=[interpolation(2, tried=9, probes=32)]
    ),
    "coreset(rank=2, tau=1.0, block=3)": lambda x: state(kernels_of_the_past(2)),
    "coreset(rank=2, tau=1.0, pivots='leverage')": lambda x: state(
        kernels(2), at_hand(2), once=[interpolation(2), leverage(lambda text: text.new_keys)]
    ),
    "coreset(rank=2, pivots='uniform', weights='equal')": lambda x: exact_keys(told(2)),
    "coreset(rank=2, pivots='thinning', weights='equal')": lambda x: exact_keys(thinned(2)),
    "projection(rank=2, block=3)": lambda x: projection(2, block=3),
    "projection(rank={s}, block=2, pivots='qr')": lambda x: projection(x.s, "qr", 2),
    "projection(rank=2, block=2, pivots='h2o')": lambda x: projection(2, "h2o", 2),
    "projection(rank={s}, pivots='leverage')": lambda x: projection(x.s, "leverage"),
    "godec(rank=2, k={s})": lambda x: replaced(state(by_search(2)), told(x.s)),
    "logit_svd(rank=1)": lambda x: of_compressed("svd", 1),
    "key_pca(rank=1)": lambda x: of_compressed("pca", 1),
    "channels(r=1)": lambda x: of_compressed("channels", 1),
    "key_channels(r=1)": lambda x: few_channels(1, 0),
    "key_channels(r=1, group=2)": lambda x: few_channels(1, 1),
    "key_channels(r=1, group=2, recent={s})": lambda x: few_channels(1, x.s),
    "quantised(bits=2)": lambda x: coded(scales=2),
    "quantised(bits=2, group=1, recent={s})": lambda x: coded(scales="2d", recent=x.s),
    "quantised(bits=2, by='channel', group=3, recent=1)": lambda x: coded(
        of_group="2d", group=3, recent=1
    ),
    "quantised(bits=2, by='channel', group=9999, levels='normal', recent=0)": lambda x: coded(
        of_group="2d"
    ),
    "qjl(m=3)": lambda x: coded(lambda d: [(3, d)], 1),
    "qjl(m=5, recent={s})": lambda x: coded(lambda d: [(5, d)], 1, recent=x.s),
    "turboquant(bits=2)": lambda x: coded(lambda d: [(d, d)], 1),
    "turboquant(bits=2, rotation='hadamard')": lambda x: coded(lambda d: [None], 1),
    "turboquant(bits=2, form='product')": lambda x: coded(lambda d: [(d, d), (d, d)], 2),
    "turboquant(bits=1, form='product')": lambda x: coded(lambda d: [(d, d)], 1),
    "turboquant(bits=2, form='eden', rotation='none', group=3, recent=1)": lambda x: coded(
        scales=1, of_group="d", group=3, recent=1
    ),
    "rounded_values(exact(), bits=2, group=2)": lambda x: scaled_values(
        lambda c: 2 * math.ceil(c / 2)
    ),
    "scatterbrain(positive(m=3), top_k(k={s}))": lambda x: replaced(state(linear(3)), told(x.s)),
    "scatterbrain(uniform(), pages(k={h}, size=2))": lambda x: replaced(
        running_sum, pages(x.h, 2, "box"), entry=False
    ),
    "scatterbrain(key_pca(rank=1), random(k={s}))": lambda x: replaced(
        of_compressed("pca", 1), told(x.s), entry=False
    ),
    "scatterbrain(nystrom(rank=2), sink_window(k={h}, sinks=1))": lambda x: replaced(
        TWINS["nystrom(rank=2)"](x), sink_window(x.h, 1)
    ),
    "sampled(k={s}, low_rank=one())": lambda x: replaced(
        running_sum, drawn_beside(told(0), x.s), entry=False
    ),
    "sampled(top_k(k=1), k={s}, low_rank=positive(m=3))": lambda x: replaced(
        state(linear(3)), drawn_beside(told(1), x.s)
    ),
    "centered(positive(m=3))": lambda x: centred(state(linear(3))),
    "centered(top_k(k={h}), queries=False)": lambda x: centred(
        exact_keys(told(x.h)), queries=False
    ),
    "centered(taylor(degree=1))": lambda x: [
        centred(state(monomials(1))),
        centred(polynomial_of_logits(1)),
    ],
    **dict.fromkeys(("elu()", "relu()"), lambda x: state(coordinates())),
    "cosformer()": lambda x: state(coordinates(2)),
    "flowformer()": lambda x: flowformer,
    "linformer(rank=2)": lambda x: linformer(2, drawn=False),
    "linformer(rank=2, combinations='gaussian')": lambda x: linformer(2, drawn=True),
    "nystromformer(rank=2)": lambda x: nystromformer(2, None),
    "nystromformer(rank=2, iterations=3)": lambda x: nystromformer(2, 3),
    "flash(size={s})": lambda x: flash(x.s),
    "randomized_attention(samples=2)": lambda x: randomized_attention(2),
    "lara(m=3)": lambda x: state(linear(3), once=[importance(3)]),
    "eva(m=2, sparse=chunk(size={s}))": lambda x: eva(2, chunk(x.s)),
    "hierarchical(rank=1, leaf=2)": lambda x: hierarchical(1, 2, "svd"),
    "hierarchical(rank=1, leaf=2, space='attention')": lambda x: hierarchical(
        1, 2, "svd", space="attention"
    ),
    "hierarchical(rank=1, leaf=2, basis='mean', sinks=1)": lambda x: hierarchical(
        1, 2, "mean", sinks=1
    ),
    "hierarchical(rank=1, leaf=2, basis='pivots')": lambda x: hierarchical(1, 2, "pivots"),
}
SUPPORTS = {  # what answers from the keys of a selection
    "exact()": lambda x: told(x.l),
    "top_k(k={h})": lambda x: told(x.h),
    "true_denominator(top_k(k={h}))": lambda x: told(x.h),
    "threshold(level=0.3)": lambda x: told(3),
    "random(k={h})": lambda x: told(x.h),
    "sliding_window(width={h})": lambda x: sliding_window(x.h),
    "sink_window(k={h}, sinks=1)": lambda x: sink_window(x.h, 1),
    "chunk(size={h})": lambda x: chunk(x.h),
    "strided(k={h})": lambda x: strided(x.h),
    "projected_top_k(k={s}, r=1)": lambda x: projected_top_k(x.s, 1, "pca"),
    "projected_top_k(k={s}, r=1, by='svd')": lambda x: projected_top_k(x.s, 1, "svd"),
    "projected_top_k(k={s}, r=1, by='channels')": lambda x: projected_top_k(x.s, 1, "channels"),
    "pages(k={h}, size=2)": lambda x: pages(x.h, 2, "box"),
    "pages(k={h}, size=3, by='mean')": lambda x: pages(x.h, 3, "mean"),
    "pages(k={h}, size=3, by='deviation', current=True)": lambda x: pages(
        x.h, 3, "deviation", True
    ),
    "pages(k={h}, size=3, by='mass')": lambda x: pages(x.h, 3, "mass"),
    "pages(k={h}, size=3, current=True)": lambda x: pages(x.h, 3, "box", True),
    "vertical_slash(k={h}, queries=3)": lambda x: vertical_slash(x.h, 3),
    "vertical_slash(k={h}, by='mass')": lambda x: vertical_slash(x.h, 0, "mass"),
    "smyrf(size={s}, rounds=2)": lambda x: smyrf(x.s, 2),
    "sorted_lsh(size={h}, hashes=2)": lambda x: sorted_lsh(x.h, 2),
    "reformer(size={s}, rounds=2)": lambda x: reformer(x.s, 2),
    "sampled(k={s})": lambda x: drawn_beside(told(0), x.s),
    "sampled(sink_window(k=2), k={s})": lambda x: drawn_beside(sink_window(2, 1), x.s),
    "sampled(chunk(size={s}), 'multinomial', k=2, sizes='bound')": lambda x: drawn_beside(
        chunk(x.s), 2, "bound"
    ),
    "guarded(top_k(k={h}), size=2, bits=2)": lambda x: guarded(told(x.h), 2, 2),
    "guarded(sink_window(k=2), size=3, bits=2, coded=1)": lambda x: guarded(
        sink_window(2, 1), 3, 2
    ),
    "guarded(pages(k={h}, size=2), size=3, bits=0)": lambda x: guarded(pages(x.h, 2, "box"), 3, 0),
}
for by in ("mass", "snapkv", "critical", "expected", "key_norm", "key_diff", "leverage", "cur"):
    last = ", window=3" if by in ("snapkv", "critical") else ""
    SUPPORTS |= {
        f"columns(k={{h}}, by='{by}'{last})": lambda x, by=by: columns(x.h, by, 3),
        f"columns(k={{h}}, by='{by}', block=2{last})": lambda x, by=by: evicted(x.h, by, 2, 3),
    }
for by in RUNNING:
    SUPPORTS[f"columns(k={{h}}, by='{by}')"] = lambda x, by=by: evicted(x.h, by)
TWINS |= {spec: lambda x, of=of: exact_keys(of(x)) for spec, of in SUPPORTS.items()}
for spec in (
    "positive(m=3)", "random_phase(m=3)", "generalized_exponential(m=3)", "shifted_positive(m=3)",
    "dense_exponential(m=3, form='saderf')", "poisson(m=3)", "geometric(m=3)", "regularized(m=3)",
    "leverage(m=3)",
):  # fmt: skip
    TWINS[spec] = lambda x: state(linear(3))
for spec in ("hyperbolic(m=4)", "generalized_trigonometric(m=4)", "rfa(m=4)"):
    TWINS[spec] = lambda x: state(linear(2, 2))
for spec, degree in (
    ("taylor(degree=1)", 1), ("taylor(degree=3)", 3), ("tensor_power(n=2)", 2),
    ("richardson(n=1)", 2), ("chebyshev(degree=2)", 2), ("minimax(degree=2)", 2),
    ("least_squares(degree=2)", 2),
):  # fmt: skip
    TWINS[spec] = lambda x, n=degree: [state(monomials(n)), polynomial_of_logits(n)]  # the cheaper
