"""The base of all methods: their fields, prices and sizes, and other names for them."""

from approx.method.evaluation import Rng as Rng, generator as generator
from approx.method.filling import MOST_KEYS as MOST_KEYS, Size as Size
from approx.method.label import Label as Label
from approx.method.method import FROBENIUS as FROBENIUS, TV as TV, Method as Method
from approx.method.moments import Moments as Moments
