"""The base of all methods: their fields, prices and sizes, and other names for them."""

from approx.method.label import Label as Label
from approx.method.method import (
    KERNEL as KERNEL,
    MOST_KEYS as MOST_KEYS,
    TV as TV,
    Method as Method,
    Moments as Moments,
    Rng as Rng,
    Size as Size,
    generator as generator,
)
