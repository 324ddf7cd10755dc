"""The base of all methods: their fields, prices and sizes, and other names for them."""

from approx.method.filling import MOST_KEYS as MOST_KEYS, Size as Size
from approx.method.label import Label as Label
from approx.method.method import (
    KERNEL as KERNEL,
    TV as TV,
    Method as Method,
    Moments as Moments,
    Rng as Rng,
    generator as generator,
)
