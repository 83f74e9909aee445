"""What `lmc` raises on a user's mistake: always one line that names the input, the value and the rule."""

from __future__ import annotations


class LMCError(Exception):
    """Base of every error that `lmc` raises on purpose."""


class GraphError(LMCError, ValueError):
    """An array that does not describe a graph, or a node set that is not in it."""


class EntryError(GraphError):
    """An entry of an array that breaks a rule.

    Attributes:
        array: the name of the array, if it is known.
        place: where in it.
        why: the value and the rule.
    """

    array: str = ""
    place: tuple[int, ...] = ()
    why: str = ""

    @classmethod
    def at(cls, array: str, place: tuple[int, ...], why: str) -> EntryError:
        """The error at a place of an array."""
        error = cls(f"{array}[{', '.join(map(str, place))}] = {why}")
        error.array, error.place, error.why = array, place, why
        return error


class DatasetError(LMCError, ValueError):
    """A data set whose name is unknown, whose files are missing, or that cannot be read."""


class ArgumentError(LMCError, ValueError):
    """An option outside its range or unknown by name."""


class RunError(LMCError, RuntimeError):
    """A run that cannot go on, such as one whose loss is not finite, or files that are not those of a run."""


class DivergedError(RunError):
    """A loss or a weight that is no finite number any more."""
