"""Positive random features as a transformer of scikit-learn; only this file imports it."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from approx import checks
from approx.checks import Array
from approx.estimate.distances import half_square
from approx.projections import named


class SoftmaxKernelSampler(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Random features φ of the softmax kernel: φ(x)·φ(y) is unbiased for exp(scale·x·y).

    φ(x)_r = m^{−1/2} exp(√scale ω_r·x − scale|x|²/2),  ω_r ~ N(0, I_d).

    Parameters
    ----------
    n_components : int
        m, the number of features.
    scale : float, optional
        A number > 0; the default is 1/√d, as in scaled dot-product attention.
    projection : str
        The joint distribution of the frequencies, a name in `approx.projections.PROJECTIONS`.
    random_state : int, RandomState or None

    Attributes
    ----------
    random_weights_ : (n_components, n_features_in_)
        ω.
    scale_ : float
    n_features_in_ : int
    feature_names_in_ : (n_features_in_,)
        Names of the features, if X has them.

    Notes
    -----
    Every feature is > 0. The relative variance of φ(x)·φ(y) is (e^{scale|x+y|²} − 1)/m. At the
    norms of queries and keys of trained models, no affordable m makes it small. Features have the
    dtype of X, float64 or float32; a feature above its range raises a ValueError. The method
    `positive` stores exponents separately and has no such limit.
    Cost: 2·n·m·d operations.

    References
    ----------
    .. [1] K. Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, Lemma 1.

    Examples
    --------
    >>> X = np.array([[0.3, 0.1], [0.2, -0.4]])
    >>> phi = SoftmaxKernelSampler(100_000, scale=1.0, random_state=0).fit_transform(X)
    >>> bool(np.allclose(phi @ phi.T, np.exp(X @ X.T), rtol=0.02))
    True
    """

    def __init__(
        self,
        n_components: int = 100,
        *,
        scale: float | None = None,
        projection: str = "iid",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.scale = scale
        self.projection = projection
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Draw the frequencies for the width of X; the values of X do not matter."""
        x: Array = validate_data(self, X, dtype=[np.float64, np.float32])
        m = checks.integer("n_components", self.n_components, least=1)
        d = x.shape[1]
        scale = 1 / math.sqrt(d) if self.scale is None else self.scale
        self.scale_ = checks.positive("scale", scale)
        seed = check_random_state(self.random_state).randint(2**32, size=4, dtype=np.uint64)
        rng = np.random.default_rng(seed)
        law = named(self.projection)
        if m < (least := law.least(d)):
            raise ValueError(
                f"projection {self.projection!r} needs n_components >= {least} at d={d}, got {m}"
            )
        omega, weights = law.draw(m, d, rng)
        self.random_weights_ = omega.astype(x.dtype)
        self._half_log_weights = (0.5 * np.log(weights)).astype(x.dtype)
        self._n_features_out = m
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Return φ(X), (n, n_components).

        Raises
        ------
        ValueError
            A feature is above the range of the dtype.
        """
        check_is_fitted(self)
        x: Array = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        x = x * math.sqrt(self.scale_)
        log = x @ self.random_weights_.astype(x.dtype).T
        log += self._half_log_weights.astype(x.dtype) - half_square(x)[:, None]
        if (top := float(log.max())) > math.log(np.finfo(x.dtype).max):
            raise ValueError(
                f"a feature e^{top:.6g} is not representable in {x.dtype}: lower the scale or X"
            )
        return np.asarray(np.exp(log, out=log))
