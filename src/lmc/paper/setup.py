"""How much of an experiment is run, on which graphs, and how one run is made."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, TypeVar

from rich.console import Console
from rich.progress import track

import lmc
from lmc.bench import rows
from lmc.bench.run import Job
from lmc.checks import one_of
from lmc.data.datasets import is_at_hand
from lmc.data.graph import Graph
from lmc.errors import DatasetError
from lmc.nn.model import Model
from lmc.paper.outcome import Outcome
from lmc.runs import registry
from lmc.runs.config import Config, for_method, merged
from lmc.runs.mean_of_runs import MeanOfRuns
from lmc.runs.presets import PRESETS
from lmc.training.callbacks import Callback
from lmc.training.loop import prepare_training
from lmc.training.options import TrainingOptions
from lmc.training.records import Result

Tree = dict[str, dict[str, Any]]
Item = TypeVar("Item")

# By the names in the paper's tables.
METHOD_SETTINGS: dict[str, dict[str, Any]] = {
    method.in_paper: {"name": name} for name, method in registry.METHODS.items() if method.in_paper
}
MODELS = {kind.title: name for name, kind in registry.MODELS.items() if kind.in_paper}
LARGE = ("arxiv", "flickr", "reddit", "ppi")

# What the paper found best (appendix E.4): trust the up-to-date values where a batch is large.
LARGE_BATCH = {"name": "lmc", "alpha": 1.0, "score": "1"}
SMALL_BATCH = {"name": "lmc", "alpha": 0.4, "score": "2x-x^2"}
# What this library does where nothing is said: β is found, and so are batches.
FOUND = {"name": "lmc"}
BATCHES = ("parts", "parts_per_batch", "balance")


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is run; None is what the experiment itself takes.

    Attributes:
        epochs: of every run.
        runs: how many, each with its own seed.
        data: graphs other than the experiment's own; none for those.
        root: the folder to look for them in.
        model: `"gcn"` or `"gcnii"`, where an experiment has both.
        methods: by their names for `--method`, where an experiment has all of them; none for all.
        clusters: in a batch, where an experiment has several sizes.
        quick: as little as shows that it works.
        keep: called with what is found so far, where an experiment goes on for long.
    """

    epochs: int | None = None
    runs: int | None = None
    data: tuple[str, ...] = ()
    root: str | None = None
    model: str | None = None
    methods: tuple[str, ...] = ()
    clusters: tuple[int, ...] = ()
    quick: bool = False
    keep: Callable[[Outcome], object] = lambda outcome: None

    def __post_init__(self) -> None:
        if self.model is not None:
            one_of("model", self.model, MODELS.values())
        for name in self.methods:
            one_of("method", name, registry.TRAINING_METHODS)

    def epochs_of(self, full: int) -> int:
        """How many epochs, where all of an experiment has `full`."""
        return self.epochs or (min(full, 2) if self.quick else full)

    def seeds(self, full: int) -> range:
        """The seeds of the runs."""
        return range(self.runs or (1 if self.quick else full))

    def models(self) -> list[str]:
        """As the paper writes their names."""
        return [written for written, name in MODELS.items() if self.model in (None, name)]

    def graphs(self, *names: str) -> dict[str, Graph]:
        """Those of the graphs that are at hand; if none is, the first, which may have to be downloaded."""
        if self.data:
            return {name: lmc.load(name, self.root) for name in self.data}
        found = {}
        for name in names:
            if is_at_hand(name, self.root):
                with contextlib.suppress(DatasetError):
                    found[name] = lmc.load(name, self.root)
        if not found:
            return {names[0]: lmc.load(names[0], self.root)}  # its error says where it was looked for
        return found


def settings_of(model: str, data: str) -> Tree:
    """The paper's settings for a model on a graph; those for arxiv where it has none."""
    preset = PRESETS.get(f"{MODELS[model]}-{data}", PRESETS[f"{MODELS[model]}-arxiv"])
    return merged(preset, {"data": {"name": data}})


def with_method(settings: Tree, method: dict[str, Any]) -> Tree:
    """The same settings for another method."""
    return for_method(settings, method)


def with_chosen_batches(settings: Tree) -> Tree:
    """The same settings without the paper's batches: those that are chosen where nothing is said."""
    training = {name: value for name, value in settings["training"].items() if name not in BATCHES}
    return {**settings, "training": training}


def trained(
    graph: Graph, settings: Tree, seed: int, callbacks: Sequence[Callback] = (), **training: Any
) -> Result:
    """One run from beginning to end; nothing of it is kept on disk."""
    config = Config.of(merged(settings, {"training": {"seed": seed, **training}}))
    model = config.build_model(graph.num_features, graph.num_classes)
    options = TrainingOptions(**config.training)
    result = prepare_training(graph, model, config.build_estimator(), options, callbacks).run()
    reached = "" if result.best is None else f": val {result.best.val:.4f} in epoch {result.best.epoch}"
    changed = " ".join(f"{name} {value}" for name, value in training.items())
    console().print(
        f"{config.method['name']} seed {seed} {changed}{reached}", highlight=False, soft_wrap=True
    )
    return result


def best_rate(
    train: Callable[[float, int], Result], rates: Sequence[float], seeds: Sequence[int], searched: int
) -> tuple[float, list[Result]]:
    """The learning rate that is best on average on the first seeds, and the runs of all seeds with it.

    Args:
        train: a run with a learning rate and a seed.
        rates: to choose from.
        seeds: of the runs.
        searched: how many of them are to tell, since one run may be luck.
    """
    found = {rate: [train(rate, seed) for seed in seeds[:searched]] for rate in rates}
    best = max(found, key=lambda rate: statistics.fmean(map(best_val, found[rate])))
    return best, found[best] + [train(best, seed) for seed in seeds[searched:]]


def best_val(result: Result) -> float:
    """The highest validation metric of a run; 0 where there is none."""
    return result.best.val or 0.0 if result.best is not None else 0.0


def at_best(results: Iterable[Result], what: Literal["val", "test"]) -> MeanOfRuns | None:
    """The metric at the best validation epoch of every run, in per cent; None where there is none."""
    found = [getattr(result.best, what) for result in results if result.best is not None]
    known = [100 * value for value in found if value is not None]
    return MeanOfRuns(known) if known else None


def curves_of(found: Mapping[str, Sequence[Result]]) -> dict[str, list[list[float | None]]]:
    """The validation metric after every epoch, of every run of every method."""
    return {name: [[r.val for r in result.history] for result in results] for name, results in found.items()}


def job_of(settings: Tree, data: str, root: str | None) -> Job:
    """The epochs of a run, for a process of its own: see `bench`."""
    config = Config.of(settings)
    options = TrainingOptions(**config.training)
    make = partial(
        rows.own,
        estimator=config.build_estimator(),
        batches=options.batches,
        make_model=partial(_model, settings),
        lr=options.lr,
    )
    return make, partial(lmc.load, data, root)


def _model(settings: Tree, graph: Graph) -> Model:
    return Config.of(settings).build_model(graph.num_features, graph.num_classes)


@cache
def console() -> Console:
    """Where progress is shown: one for all, so that lines and bars keep out of each other's way."""
    return Console(stderr=True)


def with_progress(items: Iterable[Item], title: str) -> Iterator[Item]:
    """The items, with a bar on the terminal that shows how many are done."""
    yield from track(list(items), title, console=console(), transient=True)


def about_data(names: Iterable[str]) -> list[str]:
    """What a reader must know of the graphs and the machine, a sentence each."""
    notes = [f"Graphs at hand: {', '.join(names)}; the paper has {', '.join(LARGE)}."]
    if "arxiv" in names:
        notes.append(
            "The features of arxiv here may be stand-ins for OGB's: compare methods with each other,"
            " not their accuracies with the paper's."
        )
    notes.append("CPU instead of an RTX 2080 Ti: seconds and megabytes are of another machine.")
    return notes
