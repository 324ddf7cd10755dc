"""Obvious slow twins: what the fast code must equal."""

import itertools
import math
import statistics

import mpmath
import numpy as np


def kernel(Q, K):
    return np.array([[math.exp(float(np.dot(q, k))) for k in K] for q in Q])


def seen(mask, n, l):
    """Whether query i sees key j: (n, l); a mask is None, "causal", or has first and stop."""
    table = np.ones((n, l), bool)
    for i, j in itertools.product(range(n), range(l)):
        if mask == "causal":
            table[i, j] = j <= i + l - n
        elif mask is not None:
            table[i, j] = mask.first[i] <= j < mask.stop[i]
    return table


def attention(Q, K, V, mask=None):
    weights = np.where(seen(mask, len(Q), len(K)), kernel(Q, K), 0.0)
    return np.array([sum(w * v for w, v in zip(row, V)) / sum(row) for row in weights])


def attention_errors(estimate, Q, K, V):
    """Return tv and the error of the output of each row, in 50 digits, as `compare` defines them.

    The estimate is what `block` returns, and the logits are sums of exact products.
    """
    shift = estimate.row_log(slice(None))
    entries = estimate.block(slice(None), shift=shift).tolist()
    on = estimate.mask.visible()
    Q, K, V = (x.astype(np.float64).tolist() for x in (Q, K, V))
    found = []
    with mpmath.workdps(50):
        for i, row in enumerate(entries):
            keys = np.flatnonzero(on[i])
            x = [mpmath.fdot(Q[i], K[j]) for j in keys]
            w = [mpmath.exp(y - max(x)) for y in x]
            total = mpmath.fsum(w)
            p = [y / total for y in w]
            b = [mpmath.mpf(row[j]) for j in keys]
            if estimate.space == "attention":
                unit, empty = mpmath.exp(mpmath.mpf(float(shift[i]))), not any(b)
            else:
                mass = mpmath.fsum(b)
                empty = mass <= 0
                unit = 0 if empty else 1 / mass
            off = [0 * y if empty else y * unit for y in b]
            off = divided = [y - z for y, z in zip(off, p)]
            if estimate.fitted:
                mass = mpmath.fsum(b)
                empty = mass <= 0
                divided = [0 if empty else y / mass - z for y, z in zip(b, p)]
            tv = mpmath.mpf(1) if empty else mpmath.fsum(map(abs, divided)) / 2
            moved = [mpmath.fdot(off, [V[j][c] for j in keys]) for c in range(len(V[0]))]
            found.append((tv, mpmath.sqrt(mpmath.fsum(y * y for y in moved))))
    return found


def tensor(x, power):
    """⊗^power x, flattened: d^power entries."""
    return np.array([math.prod(c) for c in itertools.product(x, repeat=power)])


def taylor_tensors(x, degree):
    """(1, x, ⊗²x/√2!, …): Σ d^j entries."""
    return np.concatenate([tensor(x, j) / math.sqrt(math.factorial(j)) for j in range(degree + 1)])


def power_tensor(x, n):
    """⊗ⁿ(1, x/√n): (d+1)^n entries."""
    return tensor(np.concatenate([[1.0], np.asarray(x) / math.sqrt(n)]), n)


@np.errstate(over="ignore", invalid="ignore")
def errors(estimate, exact, V=None, mask=None, space="kernel", row_log=0.0):
    """Every metric of a dense estimate, by its definition; its rows are at the scale e^row_log.

    Extended precision holds exp(±10⁴), whose squares need a common factor taken out.
    """
    on = seen(mask, *exact.shape)
    e, x = (np.where(on, np.asarray(y, np.longdouble), 0) for y in (estimate, exact))
    scale = np.exp(np.broadcast_to(row_log, len(e)).astype(np.longdouble))[:, None]
    entries = np.where(e == 0, 0, e * scale)
    e = entries if space == "attention" else e
    total = e.sum(axis=1)

    def ratio(over, under, norm=np.linalg.norm):
        tops = [np.abs(y).max() or np.longdouble(1) for y in (over, under)]
        if np.isinf(tops[0]):
            return math.inf
        norms = [norm((y / top).astype(float)) for y, top in zip((over, under), tops)]
        return norms[0] / norms[1] * tops[0] / tops[1]

    q, tv, kl, reverse = np.zeros_like(e), [], [], []
    p = x / x.sum(axis=1, keepdims=True)
    log_p = np.log(np.where(on, x, 1)) - np.log(x.sum(axis=1, keepdims=True))  # where p is 0, too
    for i in range(len(e)):
        if total[i] > 0 or (space == "attention" and e[i].any()):
            q[i] = e[i] if space == "attention" else e[i] / total[i]
            tv.append(np.abs(q[i] - p[i]).sum() / 2)
            both = p[i][on[i]], q[i][on[i]], log_p[i][on[i]]
            kl.append(_kl(*both))
            reverse.append(_kl(*both, reverse=True))
        else:  # counts as zero
            tv.append(1.0)
            kl.append(math.inf)
            reverse.append(math.inf)
    found = {
        "attention_relative_frobenius": ratio(q - p, p),
        "attention_tv": np.mean(tv),
        "attention_kl": np.mean(kl),
        "attention_kl_reverse": np.mean(reverse),
        "negative_fraction": (e < 0).sum() / on.sum(),
        "nonpositive_rows": (total <= 0).sum(),
    }
    if space == "kernel":
        found["kernel_relative_frobenius"] = ratio(entries - x, x)
        found["kernel_relative_max"] = np.abs(entries - x).max() / x.max()
        found["kernel_relative_spectral"] = ratio(entries - x, x, lambda y: np.linalg.norm(y, 2))
    if V is not None:
        found["output_relative_error"] = ratio((q - p) @ V, p @ V)
    return {name: float(value) for name, value in found.items()}


def stable_pursuit(D, delta, lam, steps=4000, step=1.0):
    """Return (L, S) of min ‖L‖_* + λ‖S‖₁, ‖D − L − S‖_F ≤ δ, by Douglas–Rachford splitting."""
    A, B = D.copy(), np.zeros_like(D)
    for _ in range(steps):
        rest = D - A - B  # the nearest feasible pair
        move = max(0.0, 1 - delta / max(np.linalg.norm(rest), 1e-300)) / 2 * rest
        X, Y = A + move, B + move
        U, s, Vt = np.linalg.svd(2 * X - A, full_matrices=False)
        L = (U * np.maximum(s - step, 0)) @ Vt
        S = np.sign(2 * Y - B) * np.maximum(np.abs(2 * Y - B) - step * lam, 0)
        A, B = A + L - X, B + S - Y
    return X, Y


def pursuit(D, lam, on=True, rho=1.05, tolerance=1e-9):
    """Return min ‖L‖_* + λ Σ |D − L| over what is on, by inexact ALM with a full SVD a step."""
    mu = 1.25 / np.linalg.norm(D, 2)
    Y = np.where(on, D / max(np.linalg.norm(D, 2), np.abs(D).max() / lam), 0.0)
    S, Z = np.zeros_like(D), D
    while np.linalg.norm(Z) > tolerance * np.linalg.norm(D):
        U, s, Vt = np.linalg.svd(D - S + Y / mu, full_matrices=False)
        L = (U * np.maximum(s - 1 / mu, 0)) @ Vt
        W = D - L + Y / mu
        S = np.sign(W) * np.maximum(np.abs(W) - np.where(on, lam, 0.0) / mu, 0)
        Z = D - L - S
        Y, mu = Y + mu * Z, rho * mu
    return np.linalg.norm(L, "nuc") + lam * np.abs(np.where(on, D - L, 0.0)).sum()


def golden(n, rank, corruption):
    """The reference's instances: A Bᵀ, and 5 mean |A Bᵀ| times ±U(½, 1½) at random places."""
    rng = np.random.default_rng(0)
    L = rng.standard_normal((n, rank)) @ rng.standard_normal((n, rank)).T
    count = int(corruption * n * n)
    places = rng.choice(n * n, count, replace=False)
    signs = rng.choice([-1.0, 1.0], count)
    S = np.zeros(n * n)
    S[places] = signs * rng.uniform(0.5, 1.5, count) * 5 * np.abs(L).mean()
    return L, S.reshape(n, n)


def largest(D, count):
    """Return the largest entries of D, ties in row order, and zeros."""
    S = np.zeros_like(D)
    kept = np.argsort(-np.abs(D).ravel(), kind="stable")[:count]
    S.ravel()[kept] = D.ravel()[kept]
    return S


def truncated(D, rank):
    """Return the best matrix of a rank."""
    U, s, Vt = np.linalg.svd(D, full_matrices=False)
    return (U[:, :rank] * s[:rank]) @ Vt[:rank]


def completed(D, on, rank, L, sweeps):
    """Return the error over what is on, after filling in L elsewhere again and again."""
    for _ in range(sweeps):
        L = truncated(np.where(on, D, L), rank)
    return np.linalg.norm((D - L)[on])


def godec(D, rank, count, S, sweeps=30):
    """GoDec with a full SVD and a full sort a sweep, from a given S."""
    for _ in range(sweeps):
        L = truncated(D - S, rank)
        S = largest(D - L, count)
    return np.linalg.norm(D - L - S)


def _kl(p, q, log_p, reverse=False):
    """Σ p log(p/q) − p + q, or the reverse; a share of p that float64 cannot hold is none."""
    if (q < 0).any() or (not reverse and ((q == 0) & (p > 1e-323)).any()):
        return math.inf
    on = q > 0
    logs = log_p[on] - np.log(q[on])
    if reverse:
        return p.sum() - q.sum() - (q[on] * logs).sum()
    return q.sum() - p.sum() + (p[on] * logs).sum()


def reformer(Q, vertices, size):
    """Reformer's support for keys along the queries, by loops."""
    n = len(Q)
    bucket = [int(np.argmax([*(vertices @ x), *(-vertices @ x)])) for x in Q]
    order = sorted(range(n), key=lambda i: (bucket[i], i))
    chunks = [order[start : start + size] for start in range(0, n, size)]
    on = np.zeros((n, n), bool)
    for c, chunk in enumerate(chunks):
        for i in chunk:
            for j in [*chunk, *chunks[c - 1]]:
                on[i, j] = bucket[i] == bucket[j]
    return on


def ratios(method, Q, K, rngs):
    """estimate/exact of every draw, (draws, n, l), by the definition."""
    truth = kernel(*(np.asarray(x, np.float64) for x in (Q, K)))
    return np.array([method.approximate(Q, K, rng=rng).to_dense() / truth for rng in rngs])


def two_pass(x):
    """Return mean, unbiased variance, and the standard error of the latter, by definition."""
    count, mean, variance = len(x), x.mean(axis=0), x.var(axis=0, ddof=1)
    fourth = ((x - mean) ** 4).mean(axis=0)
    error = np.sqrt(np.maximum(fourth - variance**2 * (count - 3) / (count - 1), 0) / count)
    return mean, variance, error


def taken(mask, leaf, sinks):
    """The rectangles of a hierarchical partition as (query, first key, stop), by recursion."""
    found = []
    end = sinks + -(-(mask.l - sinks) // leaf) * leaf
    for i, (first, stop, place) in enumerate(zip(mask.first, mask.stop, mask.positions)):

        def visit(a, size, i=i, first=first, stop=stop, place=place):
            z = min(a + size, mask.l)
            if a >= z or z <= first or a >= stop:
                return
            if first <= a and z <= stop and not a <= place < z and whole(a, size):
                found.append((i, a, z))
            elif size > leaf:
                visit(a, size // 2)
                visit(a + size // 2, size // 2)

        def whole(a, size):  # the last leaf may be short, a longer block may not
            return size == leaf or a + size <= end

        size = leaf
        while sinks + size < mask.l:
            size *= 2
        visit(sinks, size)
    return found


def dyadic_sum(P, rank, leaf):
    """Σσ² beyond the rank over the blocks [mid, hi) × [lo, mid), for n = l a power of two."""
    if len(P) <= leaf:
        return 0.0
    mid = len(P) // 2
    s = np.linalg.svd(P[mid:, :mid], compute_uv=False)
    halves = P[:mid, :mid], P[mid:, mid:]
    return math.fsum([*(s[rank:] ** 2), *(dyadic_sum(half, rank, leaf) for half in halves)])


def mean_weight(q, keys):
    """exp(q·μ)(1 + ½ Σ q² σ²): what each of some keys weighs for q."""
    mu = sum(keys) / len(keys)
    correction = 0.0
    for c in range(len(q)):
        correction += q[c] ** 2 * sum((k[c] - mu[c]) ** 2 for k in keys) / len(keys)
    return math.exp(float(np.dot(q, mu))) * (1 + correction / 2)


def gaussian_weights(pivots, keys, width):
    """G(Z, Z)⁻¹ G(Z, B) with G(x, y) = exp(−|x − y|²/(2·width²)), by a general solver."""

    def kernel_of(x, y):
        return math.exp(-sum((a - b) ** 2 for a, b in zip(x, y)) / (2 * width**2))

    ZZ = np.array([[kernel_of(x, y) for y in pivots] for x in pivots])
    ZB = np.array([[kernel_of(x, y) for y in keys] for x in pivots])
    return np.linalg.solve(ZZ, ZB)


def best_logits(Q, K, rank):
    """Return the best logits of a rank by the SVD of all of them."""
    u, s, vt = np.linalg.svd(Q @ K.T)
    return sum(s[i] * np.outer(u[:, i], vt[i]) for i in range(rank))


def projected_logits(Q, K, rank, centred):
    """Return logits of what lies in the span of the leading right singular vectors of the keys."""
    _, _, vt = np.linalg.svd(K - K.mean(axis=0) if centred else K)
    return Q @ sum(np.outer(v, v) for v in vt[:rank]) @ K.T


def channel_logits(Q, K, r, scaled):
    """Return the logits of the r channels in which a query is largest, term by term."""
    x = np.zeros((len(Q), len(K)))
    for i, q in enumerate(Q):
        chosen = sorted(range(len(q)), key=lambda c: -abs(q[c]))[:r]
        share = sum(abs(q[c]) for c in chosen) / sum(abs(q))
        for j, k in enumerate(K):
            x[i, j] = sum(q[c] * k[c] for c in chosen) / (share**0.5 if scaled else 1.0)
    return x


def thin_logits(Q, K, r, window, group, recent):
    """Return causal logits from r channels of each group of keys, chosen when its first is old."""
    n, (l, d) = len(Q), K.shape
    x = np.full((n, l), -np.inf)
    for i in range(n):
        place = l - n + i
        for j in range(place + 1):
            start = j // group * group if group else 0
            chosen = range(d)
            if j <= place - recent:
                until = start + recent - (l - n) if group else n
                asked = range(max(until - window, 0), max(until, 0))
                keys = range(start, min(start + (group or l), l))
                size = {
                    c: math.fsum(Q[a, c] ** 2 for a in asked or [])
                    * math.fsum(K[b, c] ** 2 for b in keys)
                    if asked
                    else math.fsum(K[b, c] ** 2 for b in keys)
                    for c in chosen
                }
                chosen = sorted(chosen, key=lambda c: -size[c])[:r]
            x[i, j] = sum(Q[i, c] * K[j, c] for c in chosen)
    return x


def levels(numbers, bits):
    """Return each number as the nearest of 2^bits levels from the least to the largest."""
    of_all = np.linspace(min(numbers), max(numbers), 2**bits)
    return np.array([min(of_all, key=lambda level: abs(level - x)) for x in numbers])


def coded_by_norm(k, levels, R, scale):
    """Return |k| Rᵀ level(√D R k/|k|)/√D of one key, scaled to k·found = |k|² or |found| = |k|."""
    norm = math.sqrt(sum(x * x for x in k))
    if not norm:
        return np.zeros(len(k))
    D = len(R)
    codes = []
    for row in R:
        place = math.sqrt(D) * sum(a * b for a, b in zip(row, k)) / norm
        codes.append(min(levels, key=lambda level: abs(level - place)))
    found = np.array([norm * sum(R[r][c] * codes[r] for r in range(D)) for c in range(len(k))])
    found /= math.sqrt(D)
    if scale == "norm":
        return found * norm / math.sqrt(sum(x * x for x in found))
    return found * (norm**2 / (found @ k)) if scale == "eden" else found


def logit_of_signs(q, k, S, unit):
    """Return |k|/(unit·m) Σ_r (s_r·q) sign(s_r·k)."""
    total = sum(float(s @ q) * (1 if s @ k >= 0 else -1) for s in S)
    return math.sqrt(sum(x * x for x in k)) / (unit * len(S)) * total


def leading(logits, on, k):
    """Return whether each entry is among the k largest of its row among those that are on."""
    chosen = np.zeros(on.shape, bool)
    for i in range(len(on)):
        keys = sorted(np.flatnonzero(on[i]), key=lambda j: -logits[i, j])
        chosen[i, keys[:k]] = True
    return chosen


def page_scores(q, keys, size, first, stop, by):
    """What a query gives to each page that it sees a key of, {page: score}, from what it sees."""
    pages = {}
    for j in range(first, stop):
        pages.setdefault(j // size, []).append(keys[j])
    if by == "mass":
        return {page: sum(math.exp(np.dot(q, k)) for k in seen) for page, seen in pages.items()}
    if by == "mean":
        return {page: np.dot(q, sum(seen) / len(seen)) for page, seen in pages.items()}
    if by == "deviation":
        return {
            page: sum(
                x * statistics.fmean(channel) + abs(x) * statistics.pstdev(channel)
                for x, channel in zip(map(float, q), np.transpose(seen).astype(float).tolist())
            )
            for page, seen in pages.items()
        }
    corners = {page: list(zip(np.min(seen, 0), np.max(seen, 0))) for page, seen in pages.items()}
    return {
        page: max(np.dot(q, corner) for corner in itertools.product(*box))
        for page, box in corners.items()
    }


def coreset(Q, K, chosen, tau, centre=None, digits=60):
    """exp(Q Zᵀ) exp(Z Zᵀ/τ²)⁻¹ exp(Z Kᵀ/τ²) with centred keys in the weights, in mpmath."""
    with mpmath.workdps(digits):
        Q, K = mpmath.matrix(Q.tolist()), mpmath.matrix(K.tolist())
        (n, d), l = (Q.rows, Q.cols), K.rows
        mean = [mpmath.fsum(K[j, c] for j in range(l)) / l for c in range(d)]
        mean = mean if centre is None else list(centre)
        X = mpmath.matrix(l, d)
        for j, c in itertools.product(range(l), range(d)):
            X[j, c] = (K[j, c] - mean[c]) / mpmath.mpf(tau)

        def dots(A, rows, B, cols):
            def dot(i, j):
                return mpmath.fsum(A[i, c] * B[j, c] for c in range(d))

            return mpmath.matrix([[mpmath.exp(dot(i, j)) for j in cols] for i in rows])

        weights = mpmath.inverse(dots(X, chosen, X, chosen)) * dots(X, chosen, X, range(l))
        estimate = dots(Q, range(n), K, chosen) * weights
        return np.array(estimate.tolist(), float)


def schur(G, chosen):
    """What rows and columns S leave of G, by a general solver."""
    if not chosen:
        return G
    return G - G[:, chosen] @ np.linalg.solve(G[np.ix_(chosen, chosen)], G[chosen])


def inclusion(sizes, k):
    """Return probabilities ∝ sizes with sum k where that leaves none above 1, one key at a time."""
    p = [0.0] * len(sizes)
    left, rest = min(k, len(sizes)), list(range(len(sizes)))
    while rest:
        largest = max(rest, key=lambda j: sizes[j])
        total = sum(sizes[j] for j in rest)
        if left * sizes[largest] < total:
            for j in rest:
                p[j] = left * sizes[j] / total
            break
        p[largest] = 1.0
        left -= 1
        rest.remove(largest)
    return np.array(p)


def columns(
    Q, K, mask, k, by, sinks=0, recent=0, block=None, window=32, kernel_size=5, pool="mean", V=None,
    prompt=0,
):  # fmt: skip
    """The support of `columns`, (n, l) bool; None where two scores tie but for rounding."""
    n, l = len(Q), len(K)
    place = [int(mask.stop[i]) - 1 if mask.looks_back else i * l // n for i in range(n)]
    p = attention(Q, K, np.eye(l), mask)
    on = np.zeros((n, l), bool)
    running = by in ("h2o", "tova", "output")
    once = prompt > 0 and block is None and not running
    if block is None and not running and not once:
        order = sorted(range(n), key=lambda i: place[i])
        near = [_window(mask, i, place[i], recent, l) for i in range(n)]
        free = range(sinks, l - recent if mask.looks_back else l)
        if by == "mass":
            score = {j: sum(p[i, j] for i in range(n) if j not in near[i]) for j in range(l)}
        else:
            came = [(Q[i], mask.first[i], mask.stop[i]) for i in order]
            how = "snapkv" if by == "critical" else by
            score = _column_scores(how, came, K, range(l), free, window, kernel_size, pool)
        room = k - sinks - recent
        if by == "critical":
            most = k // 2 - (l - len(free))
            chosen = _two_stages(score, free, most, room, min(window, n), V, latest=False)
        else:
            chosen = _best(score, free, room, latest=False)
        if chosen is None:
            return None
        for i in range(n):
            kept = {*range(sinks), *chosen, *near[i]}
            on[i, [j for j in kept if mask.first[i] <= j < mask.stop[i]]] = True
        return on
    block, recent = (l, recent + 1) if once else (block or 1, max(recent, 1))
    full = prompt or k
    last = [place[i] if mask.looks_back else min(place[i], int(mask.stop[i]) - 1) for i in range(n)]
    cache, came, got = [], [], {}
    for j in range(l):
        if j >= full and (j - full) % block == 0:
            coming = [i for i in range(n) if j <= last[i] < j + block]
            low = min((mask.first[i] for i in coming), default=0)
            whole = range(low, j)
            cache = [key for key in (whole if by == "mass" else cache) if key >= low]
            free = [key for key in cache if key >= sinks and key <= j - recent]
            room = (k if once else k - block) - (len(cache) - len(free))
            if room < len(free):
                if by == "mass":
                    score = {key: sum(p[i, key] for i in coming) for key in cache}
                elif by == "h2o":
                    score = got
                elif by in ("tova", "output"):
                    score = _by_last(by, came, K, V, cache)
                else:
                    how = "snapkv" if by == "critical" else by
                    score = _column_scores(how, came, K, cache, free, window, kernel_size, pool)
                if by == "critical":
                    half, many = (k if once else k - block) // 2, min(window, len(came))
                    most = half - (len(cache) - len(free))
                    best = _two_stages(score, free, most, room, many, V, latest=True)
                else:
                    best = _best(score, free, room, latest=by != "mass")
                if best is None:
                    return None
                cache = [key for key in cache if key not in free or key in best]
        cache.append(j)
        got[j] = 0.0
        for i in [i for i in range(n) if last[i] == j]:
            read = [key for key in cache if key >= mask.first[i]]
            on[i, read] = True
            came.append((Q[i], mask.first[i], j + 1))
            weights = [math.exp(Q[i] @ K[key]) for key in read]
            for key, weight in zip(read, weights):
                got[key] += weight / sum(weights)
    return on


def _window(mask, i, place, width, l):
    if mask.looks_back:
        return range(max(mask.stop[i] - width, mask.first[i]), mask.stop[i])
    return range(place - width // 2, place - width // 2 + width)


def _best(score, free, count, latest):
    """The keys of the largest scores; of equal ones the first or the latest."""
    ranked = sorted(free, key=lambda j: (-score[j], -j if latest else j))
    if 0 < count < len(ranked):
        worst, next_ = score[ranked[count - 1]], score[ranked[count]]
        if 0 < worst - next_ < 1e-9 * (1 + abs(worst)):
            return None
    return ranked[:count]


def _two_stages(score, free, most, room, queries, V, latest):
    """The `most` keys of the best scores, then those of the largest (mean score + ε)·‖v‖₁."""
    chosen = _best(score, free, max(most, 0), latest=False)
    if chosen is None:
        return None
    rest = [j for j in free if j not in chosen]
    norm = {j: sum(abs(x) for x in V[j]) for j in rest}
    second = {j: (score[j] / max(queries, 1) + 1e-4) * norm[j] for j in rest}
    more = _best(second, rest, room - len(chosen), latest)
    return None if more is None else [*chosen, *more]


def _by_last(by, came, K, V, cache):
    """The last query's weight of each key, or how far its output moves without the key."""
    if not came:
        return dict.fromkeys(cache, 0.0)
    q, first, stop = came[-1]
    weight = {j: math.exp(q @ K[j]) if first <= j < stop else 0.0 for j in cache}
    total = sum(weight.values())
    if by == "tova" or total == 0:
        return {j: w / (total or 1) for j, w in weight.items()}

    def output(keys):
        return sum(weight[j] * V[j] for j in keys) / sum(weight[j] for j in keys)

    moved = {}
    for j in cache:
        rest = [i for i in cache if i != j and weight[i]]
        moved[j] = np.linalg.norm(output(rest) - output(cache)) if rest else math.inf
    return moved


def _column_scores(by, came, K, keys, free, window, kernel_size, pool):
    """The score of each key by its definition, by key; `came` has (query, first, stop)."""
    keys = list(keys)
    if by == "key_norm":
        return {j: -sum(x * x for x in K[j]) for j in keys}
    if by == "key_diff":
        unit = {j: K[j] / np.linalg.norm(K[j]) if K[j].any() else 0 * K[j] for j in keys}
        anchor = sum(unit.values()) / len(keys)
        return {j: -float(np.dot(anchor, unit[j])) for j in keys}
    if by == "leverage":
        X = K[keys]
        d = X.shape[1]
        inverse = np.linalg.inv(X.T @ X + 0.01 * (X**2).sum() / d * np.eye(d))
        return {j: float(K[j] @ inverse @ K[j]) for j in keys}
    if by == "cur":
        groups = [keys[a : a + 16] for a in range(0, len(keys), 16)]
        return {j: (K[j] @ K[j]) / sum(K[i] @ K[i] for i in g) for g in groups for j in g}
    if by == "expected":
        logits = {j: [float(q @ K[j]) for q, _, _ in came] or [0.0] for j in keys}
        return {j: np.mean(x) + np.var(x) / 2 for j, x in logits.items()}
    assert by == "snapkv"
    sums = dict.fromkeys(keys, 0.0)
    for q, first, stop in came[-window:]:
        seen = [j for j in keys if first <= j < stop]
        total = sum(math.exp(q @ K[j]) for j in seen)
        for j in seen:
            sums[j] += math.exp(q @ K[j]) / total
    x = [sums[j] if j in free else 0.0 for j in keys]
    half = kernel_size // 2
    padded = [0.0] * half + x + [0.0] * half
    pooled = {"mean": lambda part: sum(part) / kernel_size, "max": max}[pool]
    return {j: pooled(padded[a : a + kernel_size]) for a, j in enumerate(keys)}


def lines(P, places, v, count, on=(), sinks=0, recent=0):
    """The v keys and `count` distances place − key of the largest sums of P, entries `on` apart.

    Of equal sums: the first keys; distances from 0 upwards, then negative ones.
    """
    n, l = P.shape
    vertical, slash = dict.fromkeys(range(l), 0.0), dict.fromkeys(range(l), 0.0)
    for i, j in itertools.product(range(n), range(l)):
        if (i, j) not in on:
            vertical[j] += P[i, j]
            slash[places[i] - j] = slash.get(places[i] - j, 0.0) + P[i, j]
    keys = sorted(vertical, key=lambda j: (j >= sinks, -vertical[j], j))
    distances = sorted(slash, key=lambda x: (not 0 <= x < recent, -slash[x], x < 0, x))
    return keys[:v], distances[:count]


def half(points, coins, flip, delta):
    """Kernel halving of a bucket by the kernel e^{x·y}, given its coins in [−1, 1]."""
    top = max(float(np.dot(x, x)) for x in points)

    def of(x, y):
        return math.exp(float(np.dot(x, y)) - top)

    pairs = list(zip(points[::2], points[1::2]))

    def product(i, j):
        (a, b), (x, y) = pairs[i], pairs[j]
        return of(a, x) - of(a, y) - of(b, x) + of(b, y)

    signs = []
    for i in range(len(pairs)):
        so_far = sum(sign * product(i, j) for j, sign in enumerate(signs))
        longest = max(math.sqrt(product(j, j)) for j in range(i + 1))
        bound = math.sqrt(product(i, i)) * longest * (0.5 + math.log(2 * len(points) / delta))
        signs.append(-1 if i > 0 and coins[i] * bound <= so_far else 1)
    return [2 * i + (flip * sign < 0) for i, sign in enumerate(signs)]


def fewest(weights, p):
    """The fewest keys whose weights sum to p, {key}: the largest, of equal ones the first."""
    kept = []
    for j in sorted(range(len(weights)), key=lambda j: (-weights[j], j)):
        kept.append(j)
        if math.fsum(weights[j] for j in kept) >= p:
            break
    return {*kept}
