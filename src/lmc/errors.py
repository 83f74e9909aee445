"""What `lmc` raises on a user's mistake: always one line that names the input, the value and the rule."""


class LMCError(Exception):
    """Base of every error that `lmc` raises on purpose."""


class GraphError(LMCError, ValueError):
    """An array that does not describe a graph, or a node set that is not in it."""


class DatasetError(LMCError, ValueError):
    """A data set whose name is unknown, whose files are missing, or that cannot be read."""


class ArgumentError(LMCError, ValueError):
    """An option outside its range or unknown by name."""


class RunError(LMCError, RuntimeError):
    """A run that cannot go on, such as one whose loss is not finite, or files that are not those of a run."""


class DivergedError(RunError):
    """A loss or a weight that is no finite number any more."""
