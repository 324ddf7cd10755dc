"""What makes an estimate: methods, their fields and prices, and names that people know."""

from approx.method.method import (
    KERNEL as KERNEL,
    TV as TV,
    Method as Method,
    Moments as Moments,
    Rng as Rng,
    Size as Size,
    generator as generator,
)
