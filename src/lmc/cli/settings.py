"""Flags that are settings of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmc.cli import completion
from lmc.cli.paths import FILE
from lmc.errors import ArgumentError
from lmc.runs.registry import METHODS, MODELS, allow_own_model, is_own

if TYPE_CHECKING:
    from lmc.runs.config import Config


def count(value: str) -> int:
    """A flag that takes a whole number, which may be written as 10e6."""
    try:
        number = float(value)
    except ValueError:
        number = 0.5
    if not number.is_integer():
        raise click.BadParameter(f"{value}: must be a whole number, such as 10000 or 10e6")
    return int(number)


def whole_numbers(value: str) -> list[int]:
    """A flag that takes numbers with commas between them."""
    try:
        return [int(each) for each in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value}: must be whole numbers with commas between them") from None


# Flag, what it sets, its type and what it is: everything else is set by --set.
_FLAGS: list[tuple[str, str, Any, str]] = [
    (
        "--data",
        "data.name",
        completion.DATA,
        "Name or path of the graph; by default synthetic, which needs no file.",
    ),
    ("--root", "data.root", click.Path(), "Folder to look for it in."),
    (
        "--features",
        "data.features",
        completion.FEATURES,
        "Made of the edges, for a graph without: degree or structure.",
    ),
    (
        "--model",
        "model.name",
        completion.MODEL,
        f"One of {', '.join(MODELS)}, or module:function of your own.",
    ),
    ("--hidden", "model.hidden", int, "Width of the hidden layers."),
    ("--layers", "model.layers", int, "Number of convolutions."),
    ("--dropout", "model.dropout", float, "Probability of a hidden entry to be dropped."),
    ("--norm", "model.norm", completion.NORM, "none, batch or layer; of PyG's models any norm of PyG."),
    ("--alpha", "method.alpha", completion.ALPHA, "LMC: how much new the halo takes, 0 to 1; auto finds it."),
    ("--score", "method.score", completion.SCORE, "LMC with a number alpha: x^2, 2x^2, 2x-x^2, x, 1 or sin."),
    (
        "--precision",
        "training.precision",
        completion.PRECISION,
        "full, half for histories of 16 bits, int8 for 8, or bf16 for products and messages, too.",
    ),
    (
        "--histories",
        "training.histories",
        completion.HISTORIES,
        "memory (default), or disk: in the folder of the run, training.history_cache of them in memory.",
    ),
    (
        "--memory",
        "training.memory",
        str,
        "What the run may take, such as 2GB, pages of files not counted; batches follow from it.",
    ),
    (
        "--device",
        "training.device",
        completion.DEVICE,
        "auto (default): a GPU if there is one; cpu, cuda, cuda:1, mps.",
    ),
    (
        "--fanouts",
        "method.fanouts",
        whole_numbers,
        "sage, vrgcn: neighbours, the last layer's first: 25,10; the last number for all that remain.",
    ),
    (
        "--sizes",
        "method.sizes",
        whole_numbers,
        "fastgcn, ladies: nodes, the last layer's first: 512,256; the last number for all that remain.",
    ),
    (
        "--batch-size",
        "method.batch_size",
        int,
        "Targets of a step; saint, mvs: how much it draws.",
    ),
    (
        "--spider",
        "method.spider",
        int,
        "Any method: each Q-th batch is large, others say what changed.",
    ),
    ("--parts", "training.parts", int, "Clusters to cut the graph into; by default, by its size."),
    (
        "--partition",
        "training.partition",
        completion.PARTITION,
        "auto: metis where memory allows, else stream, which reads edges from disk; or bfs, random.",
    ),
    ("--parts-per-batch", "training.parts_per_batch", int, "Clusters in a batch."),
    ("--batch-share", "training.batch_share", float, "Share of the nodes in a batch, instead of clusters."),
    (
        "--balance",
        "training.balance",
        completion.BALANCE,
        "labels (default): batches have the graph's mix of labels; gradients: of gradients; none: random.",
    ),
    ("--shards", "training.shards", int, "Sets of clusters; a step adds up a batch of each."),
    ("--overlap", "training.overlap", bool, "Send what the next step reads of other shards during this one."),
    ("--epochs", "training.epochs", int, "How often every cluster is visited."),
    ("--lr", "training.lr", float, "Learning rate."),
    ("--optimizer", "training.optimizer", completion.OPTIMIZER, "adam, adamw, sgd, ..."),
    ("--scheduler", "training.scheduler", completion.SCHEDULER, "cosine or plateau."),
    ("--weight-decay", "training.weight_decay", float, "Of the layers."),
    ("--head-weight-decay", "training.head_weight_decay", float, "Of encoder and head."),
    ("--clip", "training.clip", float, "Largest norm of the gradient."),
    ("--patience", "training.patience", int, "Evaluations without progress until it stops."),
    ("--evaluate-every", "training.evaluate_every", int, "Epochs between evaluations."),
    ("--gradient-error-every", "training.gradient_error_every", int, "Epochs between its measurements."),
    (
        "--checkpoint",
        "training.checkpoint",
        completion.CHECKPOINT,
        "How many are kept: none, last or a number.",
    ),
    ("--checkpoint-seconds", "training.checkpoint_seconds", float, "Between checkpoints."),
    ("--seed", "training.seed", int, "Of weights, clusters, batches and dropout."),
]


SEEDS_FLAG = click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="Runs, each with the next seed."
)


def settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command all the flags that are settings of a run."""
    options = [
        click.argument("config_file", metavar="[CONFIG.toml]", type=FILE, required=False),
        click.option("--preset", type=completion.PRESET, help="Settings of the paper, such as gcn-arxiv."),
        *(_option(*each) for each in _FLAGS),
        click.option(
            "--metric",
            "training_metrics",
            multiple=True,
            help="A further metric, such as macro_f1; again for more.",
        ),
        click.option("--set", "more", multiple=True, metavar="SECTION.KEY=VALUE", help="Any other setting."),
    ]
    return reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


def _option(flag: str, place: str, kind: Any, text: str) -> Callable[..., Any]:
    how: dict[str, Any] = {"is_flag": True, "default": None} if kind is bool else {"type": kind}
    return click.option(flag, _name(place), help=text, **how)


def _no_settings(file: Path) -> str:
    """What was meant instead, most likely: a graph, or one more of several methods."""
    if file.name in METHODS:
        hint = f"methods follow one option, with commas, as in --methods gas,{file}"
    else:
        hint = f"graphs are named by --data {file}"
    return f"{file}: there is no such file of settings; {hint}"


def flag_of_own_model(model: Mapping[str, Any]) -> str:
    """The flag by which a suggested command names a model of one's own again; empty for others."""
    return f" --model {model['name']}" if is_own(model.get("name")) else ""


def tree_of(options: dict[str, Any], method: str | None = None) -> dict[str, Any]:
    """The settings of the preset, the file and the flags of a command; the later ones win."""
    from lmc import checks
    from lmc.data.datasets import from_anywhere
    from lmc.runs.config import Config, merged, parse_setting
    from lmc.runs.presets import PRESETS

    preset: str | None = options["preset"]
    config_file: Path | None = options["config_file"]
    trees: list[Any] = []
    if preset is not None:
        trees.append(PRESETS[checks.one_of("preset", preset, PRESETS)])
    if config_file is not None:
        if not config_file.exists():
            raise ArgumentError(_no_settings(config_file))
        trees.append(Config.read(config_file))
        try:
            Config.check_sections(trees[-1])
        except ArgumentError as error:
            raise ArgumentError(f"{config_file}: {error}") from None
    more = [parse_setting(text) for text in options["more"]]
    for name in (options["model_name"], *(tree.get("model", {}).get("name") for tree in more)):
        if is_own(name):  # on the command line: a file alone has no code imported
            allow_own_model(name)
    given = {place: options[_name(place)] for _, place, _, _ in _FLAGS} | {"method.name": method}
    given["training.metrics"] = list(options["training_metrics"]) or None
    flags: dict[str, dict[str, Any]] = {}
    for place, value in given.items():
        section, _, key = place.partition(".")
        if value is not None:
            flags.setdefault(section, {})[key] = value
    tree = merged(*trees, merged(flags, *more))
    Config.check_sections(tree)
    name = tree.get("data", {}).get("name")
    if isinstance(name, str):  # a run can be gone on with from any working folder
        tree["data"]["name"] = from_anywhere(name)
    return tree


def config_of(tree: dict[str, Any], options: dict[str, Any]) -> Config:
    """The settings of a run; where the file alone is wrong, the line names it."""
    from lmc.runs.config import Config

    file: Path | None = options["config_file"]
    try:
        return Config.of(tree)
    except ArgumentError as error:
        if file is not None:
            try:
                Config.of(Config.read(file))
            except ArgumentError as of_file:
                if str(of_file) == str(error):
                    raise ArgumentError(f"{file}: {error}") from None
        raise


def check_flags_of_method(tree: dict[str, Any], options: dict[str, Any]) -> None:
    """Raise ArgumentError for a flag whose option the method does not have."""
    from lmc.runs.config import DEFAULTS
    from lmc.runs.methods import understood_by

    name = tree.get("method", {}).get("name", DEFAULTS["method"]["name"])
    for flag, place, _, _ in _FLAGS:
        section, _, key = place.partition(".")
        value = options[_name(place)]
        if section != "method" or value is None or name not in METHODS:
            continue
        if not understood_by(name, {key: value}):
            having = [each for each in METHODS if understood_by(each, {key: value})]
            raise ArgumentError(f"{flag} {value}: {name} has no such option; it is for {', '.join(having)}")


def say_embedded_graph(tree: dict[str, Any]) -> None:
    """Say which graph is taken where none is named."""
    if "name" not in tree.get("data", {}):
        print("no --data: the embedded graph, synthetic, is taken")


def _name(place: str) -> str:
    """The parameter that holds the setting `section.key`."""
    return place.replace(".", "_")
