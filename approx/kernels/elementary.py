"""The exponential, the logarithm and the maximum that kernels share: Numba vectorises them.

``math.exp`` and ``math.log`` in a Numba loop are scalar calls. The functions here are straight-line
arithmetic, so the loop around them becomes vector instructions and fuses with its neighbours.
The exponential is accurate to 2 ulp,

    x = n ln 2 + r,   |r| ≤ ½ ln 2,   e^x = 2^n (1 + r + r² g(r)),   g(r) = (e^r − 1 − r)/r²,

with g interpolated at Chebyshev nodes (degree 9 for float64, 4 for float32). ln 2 is split in two
parts (Cody and Waite 1980); the head is so short that n·head is exact. Adding 1.5·2^52 rounds to n
and leaves n in the last bits, so no conversion is needed. 2^n is applied in two steps: underflow is
gradual, overflow gives inf, NaN stays NaN (the clamps are comparisons, which are false for NaN).

The logarithm of float64 is the one of fdlibm, within 1 ulp:

    x = 2^e (1 + f),   √½ ≤ 1 + f < √2,   s = f/(2 + f),   log(1 + f) = f − s (f − R(s²)).

A maximum of floats, which could be NaN, does not vectorise. A maximum of their bits, mapped to
integers in the same order, does.
"""

from typing import Any

import numpy as np

from approx.kernels.jit import by_precision, kernel

_INVERSE_LN2 = 1.4426950408889634
_LN2_HEAD = 0.6931471803691238  # 32 bits: n·head is exact for |n| < 2^20
_LN2_TAIL = 1.9082149292705877e-10
_G0, _G1, _G2, _G3, _G4, _G5, _G6, _G7, _G8, _G9 = (
    0.5000000000000001,
    0.16666666666666669,
    0.041666666666624164,
    0.008333333333330065,
    0.0013888888917196719,
    0.00019841269863040545,
    2.4801521322368692e-05,
    2.7557268480310024e-06,
    2.7620075879983367e-07,
    2.5100375832561234e-08,
)


_INVERSE_LN2_32 = np.float32(1.4426950408889634)
_LN2_HEAD_32 = np.float32(0.693145751953125)  # 15 bits
_LN2_TAIL_32 = np.float32(1.428606765330187e-06)
_H0, _H1, _H2, _H3, _H4 = (
    np.float32(0.5),
    np.float32(0.16666577756404877),
    np.float32(0.041666556149721146),
    np.float32(0.008363173343241215),
    np.float32(0.0013926175888627768),
)
_LOW_32, _HIGH_32, _ONE_32 = np.float32(-110.0), np.float32(90.0), np.float32(1.0)
_ROUND, _ROUND_32 = 1.5 * 2.0**52, np.float32(1.5 * 2.0**23)


_R1, _R2, _R3, _R4, _R5, _R6, _R7 = (
    0.6666666666666735,
    0.3999999999940942,
    0.2857142874366239,
    0.22222198432149784,
    0.1818357216161805,
    0.15313837699209373,
    0.14798198605116586,
)
_ROOT_HALF = np.int64(0x3FE6A09E667F3BCD)  # bits of √½
SURELY_NORMAL = 2.0**-900  # far above subnormal numbers, whose bits have no exponent
_LIFT, _LOG_LIFT = 2.0**200, 200 * np.log(2.0)
_ALL_BUT_SIGN, _ALL_BUT_SIGN_32 = np.int64(2**63 - 1), np.int32(2**31 - 1)


@kernel
def _exp64(x: Any) -> Any:
    x = -750.0 if x < -750.0 else x
    x = 710.0 if x > 710.0 else x
    t = x * _INVERSE_LN2 + _ROUND
    n = t - _ROUND
    r = x - n * _LN2_HEAD - n * _LN2_TAIL
    g = _G8 + r * _G9
    g = _G7 + r * g
    g = _G6 + r * g
    g = _G5 + r * g
    g = _G4 + r * g
    g = _G3 + r * g
    g = _G2 + r * g
    g = _G1 + r * g
    g = _G0 + r * g
    e = np.float64(t).view(np.int64)  # n in its last bits, of which the shifts keep 12
    half = e >> 1
    up = np.int64((half + 1023) << 52).view(np.float64)
    rest = np.int64((e - half + 1023) << 52).view(np.float64)
    return (1.0 + (r + r * r * g)) * up * rest


@kernel
def _exp32(x: Any) -> Any:
    x = _LOW_32 if x < _LOW_32 else x
    x = _HIGH_32 if x > _HIGH_32 else x
    t = x * _INVERSE_LN2_32 + _ROUND_32
    n = t - _ROUND_32
    r = x - n * _LN2_HEAD_32 - n * _LN2_TAIL_32
    g = _H3 + r * _H4
    g = _H2 + r * g
    g = _H1 + r * g
    g = _H0 + r * g
    e = np.float32(t).view(np.int32)
    half = np.int32(e >> np.int32(1))
    up = np.int32((half + np.int32(127)) << np.int32(23)).view(np.float32)
    rest = np.int32((e - half + np.int32(127)) << np.int32(23)).view(np.float32)
    return (_ONE_32 + (r + r * r * g)) * up * rest


@by_precision(double=_exp64, single=_exp32)
def exp(x: Any) -> Any:
    """Return e^x in the precision of the scalar x; callable from kernels.

    Accuracy: 2 ulp.
    """
    return _exp32(x) if isinstance(x, np.float32) else _exp64(x)


@kernel
def exp_rows(values: Any, shift: Any) -> None:
    """Replace values[i, j] by exp(values[i, j] − shift[i]), in place; C-contiguous.

    Accuracy: 2 ulp.
    """
    for i in range(values.shape[0]):
        row = values[i]
        c = shift[i]
        for j in range(row.size):
            row[j] = exp(row[j] - c)


@kernel
def log_of_normal(x: float) -> Any:
    """Return log x of a normal float64 x > 0.

    Accuracy: 1 ulp.
    """
    bits = np.float64(x).view(np.int64)
    e = (bits - _ROOT_HALF) >> 52
    f = np.int64(bits - (e << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    tail = _R6 + z * _R7
    tail = _R5 + z * tail
    tail = _R4 + z * tail
    tail = _R3 + z * tail
    tail = _R2 + z * tail
    tail = z * (_R1 + z * tail)
    n = np.float64(np.int32(e))
    return n * _LN2_HEAD + (f - (s * (f - tail) - n * _LN2_TAIL))


@kernel
def log(x: float) -> Any:
    """Return log x of a float64 x > 0.

    Accuracy: 2 ulp.
    """
    tiny = x < SURELY_NORMAL
    of_normal = log_of_normal(x * _LIFT if tiny else x)
    return of_normal - _LOG_LIFT if tiny else of_normal


@kernel
def _ordered(bits: Any) -> Any:
    # Bits of float64 as integers in the same order. It is its own inverse.
    return bits ^ ((bits >> 63) & _ALL_BUT_SIGN)


@kernel
def _ordered_32(bits: Any) -> Any:
    return np.int32(bits ^ (np.int32(bits >> np.int32(31)) & _ALL_BUT_SIGN_32))


@kernel
def _largest64(x: Any) -> Any:
    most = _ordered(np.float64(x[0]).view(np.int64))
    for j in range(x.size):
        bits = _ordered(np.float64(x[j]).view(np.int64))
        most = bits if bits > most else most
    return np.int64(_ordered(most)).view(np.float64)


@kernel
def _largest32(x: Any) -> Any:
    most = _ordered_32(np.float32(x[0]).view(np.int32))
    for j in range(x.size):
        bits = _ordered_32(np.float32(x[j]).view(np.int32))
        most = bits if bits > most else most
    return np.int32(_ordered_32(most)).view(np.float32)


@by_precision(double=_largest64, single=_largest32)
def largest(x: Any) -> Any:
    """Return the largest number of a vector; callable from kernels."""
    return _largest32(x) if x.dtype == np.float32 else _largest64(x)
