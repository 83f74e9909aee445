"""The command line: thin, every command a few calls of the library."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import lmc
from lmc.errors import ArgumentError, DatasetError, LMCError
from lmc.files import one_line

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


class OneLine(click.Group):
    """A group of commands whose mistakes are one line: exit code 2 for wrong usage, 1 for a failed run."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; say what is wrong, if anything is, without a traceback."""
        warnings.showwarning = _warn  # type: ignore[assignment]
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except (ArgumentError, DatasetError) as error:
            _fail(str(error), 2)
        except LMCError as error:
            _fail(str(error), 1)
        except OSError as error:
            _fail(f"{error.filename or 'a file'}: {one_line(error)}", 1)
        except MemoryError as error:
            _fail(f"out of memory: {one_line(error)}", 1)
        except RuntimeError as error:
            if "can't allocate memory" not in str(error):
                raise
            _fail("out of memory: more parts, fewer parts a batch or a smaller width need less", 1)
        except (click.Abort, KeyboardInterrupt):
            _fail("interrupted", 130)
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name for an unknown one."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise click.UsageError(f"{args[0]!r} is no command: must be one of {', '.join(known)}{hint}")
        return super().resolve_command(ctx, args)


def _fail(message: str, code: int) -> None:
    print("lmc: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(code)


def _warn(message: Warning | str, *_: Any) -> None:
    print("lmc: warning: " + " ".join(str(message).split()), file=sys.stderr)


@click.group(cls=OneLine)
@click.version_option(lmc.__version__)
def main() -> None:
    """Train graph neural networks on one large graph by mini-batches."""


# -- settings ------------------------------------------------------------------------------------

# Flag, what it sets, its type and what it is: everything else is set by --set.
_FLAGS: list[tuple[str, str, Any, str]] = [
    ("--data", "data.name", str, "Name or path of the graph."),
    ("--root", "data.root", str, "Folder to look for it in."),
    ("--model", "model.name", str, "gcn or gcnii."),
    ("--hidden", "model.hidden", int, "Width of the hidden layers."),
    ("--layers", "model.layers", int, "Number of convolutions."),
    ("--dropout", "model.dropout", float, "Probability of a hidden entry to be dropped."),
    ("--norm", "model.norm", str, "none, batch or layer."),
    ("--alpha", "method.alpha", float, "LMC: how much of the up-to-date values the halo takes."),
    ("--score", "method.score", str, "LMC: x^2, 2x-x^2, x, 1 or sin."),
    ("--precision", "method.precision", str, "Of the histories: full or half."),
    ("--parts", "training.parts", int, "Clusters to cut the graph into."),
    ("--parts-per-batch", "training.parts_per_batch", int, "Clusters in a batch."),
    ("--epochs", "training.epochs", int, "How often every cluster is visited."),
    ("--lr", "training.lr", float, "Learning rate."),
    ("--optimizer", "training.optimizer", str, "adam, adamw, sgd, ..."),
    ("--scheduler", "training.scheduler", str, "cosine or plateau."),
    ("--weight-decay", "training.weight_decay", float, "Of the layers."),
    ("--head-weight-decay", "training.head_weight_decay", float, "Of what stands around them."),
    ("--clip", "training.clip", float, "Largest norm of the gradient."),
    ("--patience", "training.patience", int, "Evaluations without progress until it stops."),
    ("--evaluate-every", "training.evaluate_every", int, "Epochs between evaluations."),
    ("--gradient-error-every", "training.gradient_error_every", int, "Epochs between its measurements."),
    ("--seed", "training.seed", int, "Of weights, clusters, batches and dropout."),
]


def _name(place: str) -> str:
    """What a function calls the setting at a place."""
    return place.replace(".", "_")


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command all the flags that are settings of a run."""
    options = [
        click.argument("config_file", metavar="[CONFIG.toml]", type=FILE, required=False),
        click.option("--preset", default=None, help="Settings of the paper, such as gcn-arxiv."),
        *(click.option(flag, _name(place), type=kind, help=text) for flag, place, kind, text in _FLAGS),
        click.option("--set", "more", multiple=True, metavar="SECTION.KEY=VALUE", help="Any other setting."),
    ]
    return reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


def _tree(given: dict[str, Any], config_file: Path | None, preset: str | None, more: tuple[str, ...]) -> Any:
    """What a file, a preset and flags say together; flags are heard last."""
    from lmc import checks
    from lmc.runs.config import Config, merged, parse_setting
    from lmc.runs.presets import PRESETS

    trees: list[Any] = []
    if preset is not None:
        trees.append(PRESETS[checks.one_of("preset", preset, PRESETS)])
    if config_file is not None:
        trees.append(Config.read(config_file))
    flags: dict[str, dict[str, Any]] = {}
    for place, value in given.items():
        section, _, key = place.partition(".")
        if value is not None:
            flags.setdefault(section, {})[key] = value
    tree = merged(*trees, merged(flags, *map(parse_setting, more)))
    Config.check_sections(tree)
    return tree


def _split(options: dict[str, Any]) -> dict[str, Any]:
    """The flags that are settings, by their place."""
    places = {_name(place): place for _, place, _, _ in _FLAGS}
    return {places[name]: options[name] for name in places if name in options}


# -- training ------------------------------------------------------------------------------------


@main.command()
@_settings
@click.option("--method", "method_name", help="gd, cluster, gas, fm, lmc or backward-sgd.")
@click.option("--out", type=FOLDER, help="Folder of the run.")
@click.option("--resume", type=FOLDER, help="Folder of a run to go on with; --epochs may be changed.")
@click.option("--quiet", is_flag=True, help="Errors only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per epoch.")
@click.option("--tensorboard", is_flag=True, help="Also write for TensorBoard.")
def train(
    config_file: Path | None,
    preset: str | None,
    more: tuple[str, ...],
    method_name: str | None,
    out: Path | None,
    resume: Path | None,
    quiet: bool,
    as_json: bool,
    tensorboard: bool,
    **options: Any,
) -> None:
    """Train a model and keep the run in a folder."""
    from lmc.runs import run as session
    from lmc.runs.config import Config, merged
    from lmc.runs.display import display_of
    from lmc.runs.tensorboard import TensorBoard

    given = _split(options) | {"method.name": method_name}
    tree = _tree(given, config_file, preset, more)
    if resume is not None:
        if out is not None or tree.keys() - {"training"} or tree.get("training", {}).keys() - {"epochs"}:
            raise ArgumentError(
                "--resume: goes on with the settings of the run; only --epochs may be changed"
            )
        kept = session.read_config(resume)
        if tree and kept.training.get("scheduler") == "cosine":
            raise ArgumentError("--epochs: the cosine schedule of this run ends with its epochs")
        tree = merged(kept.to_tree(), tree)
    config = Config.of(tree)
    names = Path(config.data["name"]).stem, config.model["name"], config.method["name"]
    folder = resume or out or _free("-".join(names))
    console = Console()
    callbacks = [display_of(console, quiet, as_json)]
    if tensorboard:
        callbacks.append(TensorBoard(folder / "tensorboard"))
    result = session.train_run(config, folder, resume is not None, callbacks)
    if result.stopped == "interrupted":
        print(f"lmc: interrupted; `lmc train --resume {folder}` goes on", file=sys.stderr)
    if quiet or as_json:
        return
    best = result.best
    if best is not None:
        values = {split: getattr(best, split) for split in ("train", "val", "test")}
        words = [f"{split} {value:.4f}" for split, value in values.items() if value is not None]
        console.print(f"best epoch {best.epoch}: {result.metric.name} {', '.join(words)}", highlight=False)
    if result.stopped != "interrupted":
        print(f"{result.stopped}: {folder}; `lmc report {folder}` shows it")


def _free(name: str) -> Path:
    """The first of runs/name, runs/name-2, runs/name-3, ... that is free."""
    number = 1
    while (folder := Path("runs") / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return folder


@main.command()
@_settings
@click.option("--methods", default="gd,cluster,gas,fm,lmc", show_default=True, help="Separated by commas.")
@click.option("--target", type=float, help="Validation metric to reach; by default what all reach.")
@click.option("--out", type=FOLDER, default=None, help="Folder; what is there of the same settings goes on.")
@click.option("--quiet", is_flag=True, help="The table only.")
def compare(
    config_file: Path | None,
    preset: str | None,
    more: tuple[str, ...],
    methods: str,
    target: float | None,
    out: Path | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Train several methods from the same start on the same batches, and say how they did."""
    tree = _tree(_split(options), config_file, preset, more)
    _compare(tree, methods.split(","), target, out or _free("compare"), quiet)


def _compare(tree: Any, methods: list[str], target: float | None, out: Path, quiet: bool) -> None:
    from lmc import checks
    from lmc.report import write_report
    from lmc.runs import comparison
    from lmc.runs import run as session
    from lmc.runs.config import DEFAULTS, Config, merged, understood
    from lmc.runs.display import display_of
    from lmc.runs.registry import METHODS
    from lmc.training.options import TrainingOptions

    console = Console()
    configs: dict[str, Config] = {}
    for method in methods:
        checks.one_of("--methods", method, METHODS)
        own = understood(method, tree.get("method", {}))
        base = {} if "parts" in tree.get("training", {}) else {"training": DEFAULTS["training"]}
        rest = {name: section for name, section in tree.items() if name != "method"}
        config = Config.of(merged(base, rest, {"method": {**own, "name": method}}))
        config.build_estimator().check_batches(TrainingOptions(**config.training).batches)
        configs[method] = config
    graph = next(iter(configs.values())).load_graph()
    results = {}
    for method, config in configs.items():
        callbacks = [display_of(console, quiet, False, title=method)]
        begun = (out / method / "metrics.jsonl").exists() and session.read_config(out / method) == config
        results[method] = session.train_run(config, out / method, begun, callbacks, graph)
        if results[method].stopped == "interrupted":
            print(f"lmc: interrupted; the same command with --out {out} goes on", file=sys.stderr)
            return
    target, rows = comparison.compare(results, target)
    comparison.write(out, rows, target)
    console.print(comparison.table(rows, target))
    page = write_report([out / method for method in configs], out / "report.html")
    print(f"report: {page}")


@main.command()
@click.option("--epochs", default=20, show_default=True, help="How often every cluster is visited.")
@click.option("--out", type=FOLDER, default=None, help="Folder; by default a new one under runs/.")
def demo(epochs: int, out: Path | None) -> None:
    """Train a GCN on the embedded graph by full batch, GAS and LMC, and compare them."""
    tree = {
        "data": {"name": "synthetic"},
        "model": {"name": "gcn", "hidden": 64, "layers": 3, "dropout": 0.3, "norm": "batch"},
        "training": {"parts": 40, "parts_per_batch": 10, "epochs": epochs},
    }
    Console().print(f"{lmc.synthetic()}, cut into 40 clusters, 10 a batch")
    _compare(tree, ["gd", "gas", "lmc"], None, out or _free("demo"), quiet=False)


# -- what came out -------------------------------------------------------------------------------


@main.command()
@click.argument("run", type=FOLDER)
@click.option("--data", default=None, help="Name or path of a graph; by default that of the run.")
@click.option("--root", default=None, help="Folder to look for it in.")
@click.option("--out", type=FILE, default=Path("predictions.parquet"), show_default=True, help="File.")
def predict(run: Path, data: str | None, root: str | None, out: Path) -> None:
    """Predict every node of a graph with a run's best weights: .parquet, .csv or .npz."""
    from lmc.runs import run as session
    from lmc.runs.predictions import check_suffix, write_predictions

    check_suffix(out)
    config = session.read_config(run)
    graph = lmc.load(data, root) if data else lmc.load(config.data["name"], root or config.data.get("root"))
    prediction, task = session.predictions(run, graph)
    write_predictions(out, graph, prediction, task)
    print(f"{out}: {len(prediction):,} nodes")


@main.command()
@click.argument("data")
@click.option("--root", default=None, help="Folder to look for it in.")
@click.option("--hidden", default=256, show_default=True, help="Width to reckon memory with.")
@click.option("--layers", default=3, show_default=True, help="Depth to reckon memory with.")
def inspect(data: str, root: str | None, hidden: int, layers: int) -> None:
    """Say what a graph holds, and what a batch of it would."""
    from lmc.report.inspection import inspect
    from lmc.report.inspection_tables import tables_of

    graph = lmc.load(data, root)
    for table in tables_of(inspect(graph, hidden=hidden, layers=layers)):
        Console().print(table)


@main.command()
@click.argument("runs", type=FOLDER, nargs=-1, required=True)
@click.option("--out", type=FILE, default=None, help="File; by default report.html in the first run.")
def report(runs: tuple[Path, ...], out: Path | None) -> None:
    """Write one HTML page about one or several runs."""
    from lmc.report import write_report

    print(write_report(runs, out or runs[0] / "report.html"))


@main.command()
@click.option("--data", default="arxiv", show_default=True, help="Name or path of the graph.")
@click.option("--root", default=None, help="Folder to look for it in.")
@click.option(
    "--rounds", type=click.IntRange(1), default=5, show_default=True, help="How often the rows take turns."
)
@click.option("--quick", is_flag=True, help="The main rows only.")
@click.option("--out", type=FILE, default=None, help="Keep the raw numbers as JSON.")
@click.option("--compare", "old", type=click.Path(exists=True, path_type=Path), help="An earlier --out.")
def bench(data: str, root: str | None, rounds: int, quick: bool, out: Path | None, old: Path | None) -> None:
    """Time an epoch of every method against PyG's full batch, in one run."""
    from lmc.bench import run, tables

    lmc.load(data, root)
    before = tables.earlier(old) if old is not None else None
    result = run.bench(data, root, rounds, quick, out)
    if before is not None:
        Console().print(tables.compare(before, result["seconds"]))


@main.command()
@click.argument("name", required=False)
@click.option("--list", "listed", is_flag=True, help="Say which experiments there are.")
@click.option("--all", "everything", is_flag=True, help="Run all of them, and write one page.")
@click.option("--data", default=None, help="Another graph than the experiment's own.")
@click.option("--root", default=None, help="Folder to look for graphs in.")
@click.option("--epochs", type=click.IntRange(1), default=None, help="Of every run.")
@click.option("--runs", type=click.IntRange(1), default=None, help="Seeds.")
@click.option("--model", default=None, help="gcn or gcnii, where an experiment has both.")
@click.option(
    "--clusters",
    type=click.IntRange(1, 80),
    multiple=True,
    help="Clusters a batch, in batch-size; again for more.",
)
@click.option("--quick", is_flag=True, help="As little as shows that it works.")
@click.option("--out", type=FOLDER, default=Path("results"), show_default=True, help="Where files go.")
def paper(name: str | None, listed: bool, everything: bool, out: Path, **scale: Any) -> None:
    """Run an experiment of the paper, and put its numbers beside the paper's."""
    from lmc.checks import one_of
    from lmc.paper.experiments import EXPERIMENTS
    from lmc.paper.setup import Scale
    from lmc.paper.writing import write, write_page

    if listed:
        for known, about in EXPERIMENTS.items():
            print(f"{known:15} {about.source}: {about.title}")
        return
    if everything == (name is not None):
        raise click.UsageError("NAME: name one experiment, or give --all; --list says which there are")
    names = list(EXPERIMENTS) if everything else [one_of("NAME", str(name), list(EXPERIMENTS))]
    outcomes = {}
    for each in names:
        outcomes[each] = EXPERIMENTS[each].run(Scale(**scale))
        file = write(out, each, outcomes[each])
        Console().print(*(table.markdown() for table in outcomes[each].tables), sep="\n\n", markup=False)
        print(file)
    if everything:
        write_page(out / "index.html", outcomes)
        print(out / "index.html")
