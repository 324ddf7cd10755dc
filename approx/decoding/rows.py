"""A growing array of rows, with room for more."""

from typing import Any

import numpy as np

from approx.checks import Array

ROOM = 32  # spare rows at first; later an eighth of the count


class Rows:
    """An array to which rows are appended, and from which rows can be dropped.

    Its dtype is the dtype of the first rows; before, the array is empty.

    Examples
    --------
    >>> rows = Rows(1)
    >>> rows.append(np.array([[1.0], [2.0], [3.0]]))
    >>> rows.drop(np.array([1]))
    >>> len(rows), rows.array
    (2, array([[1.],
           [3.]]))
    """

    def __init__(self, *shape: int) -> None:
        self._shape = shape
        self._room: Array | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def array(self) -> Any:
        """A view of the rows."""
        if self._room is None:
            return np.zeros((0, *self._shape))
        return self._room[: self._count]

    @property
    def nbytes(self) -> int:
        """Bytes in memory, including spare room."""
        return 0 if self._room is None else self._room.nbytes

    def append(self, rows: Array) -> None:
        """Add rows (any number, …) at the end."""
        count = self._count + len(rows)
        if self._room is None or count > len(self._room):
            room = np.empty((count + max(ROOM, count // 8), *self._shape), rows.dtype)
            room[: self._count] = self.array
            self._room = room
        self._room[self._count : count] = rows
        self._count = count

    def drop(self, places: Array) -> None:
        """Remove the rows at given indices; the others keep their order and their memory."""
        left = np.delete(self.array, places, axis=0)
        self._count = len(left)
        if self._room is not None:
            self._room[: self._count] = left
