"""How long a run over a model takes: an estimate from its first pieces of work."""

import time
from collections.abc import Callable

LONG = 20.0  # seconds; only of longer runs an estimate is announced
MEASURED = 2.0  # seconds of work that an estimate is made from


class Forecast:
    """Announces the seconds of a run once, after its first pieces of work.

    The first piece of all is not counted in the speed, since kernels and libraries are loaded then.

    Parameters
    ----------
    total : float
        The work of the run, such as layers times passes, in the unit of `add`.
    announce : callable, optional
        Called with the expected seconds of the whole run, if these are more than `LONG`.
    clock : callable

    Examples
    --------
    >>> seconds = iter([0.0, 5.0, 8.0])
    >>> forecast = Forecast(31, print, clock=lambda: next(seconds))
    >>> forecast.add(1)
    >>> forecast.add(3)
    35.0
    """

    def __init__(
        self,
        total: float,
        announce: Callable[[float], None] | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.left, self.announce, self.clock = total, announce, clock
        self.begun, self.warm, self.done = clock(), 0.0, 0.0

    def add(self, work: float) -> None:
        """Note that a piece of work is done."""
        self.left -= work
        if self.announce is None:
            return
        now = self.clock()
        if not self.warm:
            self.warm = now
            return
        self.done += work
        if now - self.warm >= MEASURED:
            seconds = now - self.begun + self.left * (now - self.warm) / self.done
            if seconds > LONG:
                self.announce(seconds)
            self.announce = None
