"""A causal transformer as Llama's, in NumPy: grouped keys, rotary positions, a gated MLP.

Any head can be computed by a method, on all tokens at once or token by token with a cache.
"""

import numpy as np

from analysis.inputs import Heads

THETA = 1e4  # of the rotary positions


class Transformer:
    """Weights are (out, in), as in PyTorch, under the names that Llama gives them."""

    def __init__(self, weights, heads, groups, eps=1e-6):
        self.weights, self.heads, self.groups, self.eps = weights, heads, groups, eps
        self.layers = sum(name.endswith("q_proj") for name in weights)
        self.d = weights["0.q_proj"].shape[0] // heads

    @classmethod
    def random(cls, layers=2, heads=4, groups=2, d=8, inner=24, words=50, seed=0):
        """Return a model whose attention is far from uniform."""
        rng, width = np.random.default_rng(seed), heads * d
        shapes = {"embed": (words, width), "norm": width, "lm_head": (words, width)}
        for i in range(layers):
            shapes |= {f"{i}.q_proj": (width, width), f"{i}.o_proj": (width, width)}
            shapes |= {f"{i}.{x}_proj": (groups * d, width) for x in "kv"}
            shapes |= {f"{i}.{x}_proj": (inner, width) for x in ("gate", "up")}
            shapes |= {f"{i}.down_proj": (width, inner), f"{i}.before": width, f"{i}.after": width}
        weights = {name: 0.4 * rng.standard_normal(shape) for name, shape in shapes.items()}
        return cls(weights, heads, groups)

    def norm(self, x, name):
        return self.weights[name] * x / np.sqrt((x**2).mean(-1, keepdims=True) + self.eps)

    def rotated(self, x, places):
        """Turn the pairs (x_c, x_{c + d/2}) of heads (…, n, d) by place/θ^{2c/d}."""
        half = self.d // 2
        angles = np.outer(places, THETA ** (-np.arange(half) / half))
        a, b = x[..., :half], x[..., half:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def projected(self, i, x, places):
        """Return q (heads, n, d), k and v (groups, n, d) of a layer."""
        y = self.norm(x, f"{i}.before")
        q, k, v = (
            (y @ self.weights[f"{i}.{name}_proj"].T).reshape(len(x), -1, self.d).swapaxes(0, 1)
            for name in "qkv"
        )
        return self.rotated(q, places), self.rotated(k, places), v

    def finished(self, i, x, outputs):
        """Return what leaves a layer, given the outputs of its heads, (heads, n, d)."""
        w = self.weights
        x = x + outputs.swapaxes(0, 1).reshape(len(x), -1) @ w[f"{i}.o_proj"].T
        y = self.norm(x, f"{i}.after")
        gate = y @ w[f"{i}.gate_proj"].T
        return x + (gate / (1 + np.exp(-gate)) * (y @ w[f"{i}.up_proj"].T)) @ w[f"{i}.down_proj"].T

    def logits(self, x):
        return self.norm(x, "norm") @ self.weights["lm_head"].T

    def prefill(self, tokens, methods=(), seed=0, window=None):
        """Return logits (n, words) and what enters each layer and leaves the last, all at once.

        ``methods`` are {(layer, head): method}; other heads are exact, with a window if one is
        given.
        """
        methods, n = dict(methods), len(tokens)
        places, x = np.arange(n), self.weights["embed"][tokens]
        states = [x]
        for i in range(self.layers):
            q, k, v = self.projected(i, x, places)
            ids = tuple((i, head, "") for head in range(self.heads))
            head_of = Heads("layer", q, k, v, scaling=self.d**-0.5, mask="causal", ids=ids).at
            outputs = np.empty_like(q)
            for head in range(self.heads):
                if (i, head) in methods:
                    one = head_of(i, head)
                    outputs[head] = one.approximate(methods[i, head], rng=seed).attend(one.V)
                else:
                    mine = head * self.groups // self.heads
                    outputs[head] = exact(q[head], k[mine], v[mine], window or n)
            x = self.finished(i, x, outputs)
            states.append(x)
        return self.logits(x), states

    def decoder(self, method, seed=0):
        """Return a function of the next token that returns its logits, with a cache a head."""
        caches = {
            (i, head): method.cache(d=self.d, c=self.d, rng=seed)
            for i in range(self.layers)
            for head in range(self.heads)
        }
        root, place = self.d**-0.25, 0  # of the scaling of logits, as in Head

        def step(token):
            nonlocal place
            x = self.weights["embed"][[token]]
            for i in range(self.layers):
                q, k, v = self.projected(i, x, [place])
                outputs = np.empty_like(q)
                for head in range(self.heads):
                    mine = head * self.groups // self.heads
                    caches[i, head].append(root * k[mine, 0], v[mine, 0])
                    outputs[head, 0] = caches[i, head].attend(root * q[head, 0])
                x = self.finished(i, x, outputs)
            place += 1
            return self.logits(x)[0]

        return step


def exact(q, k, v, window):
    """Return attention to the last keys, row by row."""
    rows = []
    for i, one in enumerate(q):
        seen = slice(max(i + 1 - window, 0), i + 1)
        weights = np.exp(k[seen] @ one / np.sqrt(len(one)))
        rows.append(weights @ v[seen] / weights.sum())
    return np.array(rows)


def divergence(own, other):
    """Return KL(own ‖ other) of the next token at each position, from logits."""
    p, q = (np.exp(x - x.max(1, keepdims=True)) for x in (own, other))
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    return (p * np.log(p / q)).sum(1)
