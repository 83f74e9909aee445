"""A search over settings by Optuna: trials in their folders, pruned early, resumed by the same call.

A trial depends on the trials before it and its own number alone: a search that was stopped and goes on tries
the same settings as one that never was.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tomli_w

from lmc import checks
from lmc.errors import ArgumentError, DivergedError, RunError
from lmc.files import write_atomically
from lmc.runs.config import Config, merged
from lmc.runs.display import Watch
from lmc.runs.folder import CHECKPOINTS, CONFIG, HISTORIES
from lmc.runs.places import METRICS, check_holds_no_run, check_unused
from lmc.runs.registry import method_title
from lmc.runs.run import train_run
from lmc.runs.search_space import Choices, Range, SearchSpace, at_places
from lmc.runs.study import State, Study, Trial, trial_folder, write_study
from lmc.training.callbacks import Callback
from lmc.training.loop import Training
from lmc.training.metrics import metric_of
from lmc.training.records import Record, Result

if TYPE_CHECKING:
    import optuna

Pruner = Literal["median", "hyperband", "none"]
SETTINGS, STORE, BEST = "study.toml", "study.db", "best.toml"
NAME = "lmc"  # of the study within its file
OUTCOME = "outcome"  # what a trial keeps of its run
ENOUGH = 5  # trials before anything is learnt from them


def tune(
    tree: Mapping[str, Any],
    space: SearchSpace,
    out: Path,
    trials: int = 20,
    pruner: Pruner = "median",
    watch: Callable[[int], Watch] | None = None,
    tell: Callable[[Study, Trial], None] | None = None,
) -> Study:
    """Search for the settings with the best validation metric.

    Args:
        tree: the settings that all trials share, by section.
        space: those that are tried.
        out: a folder for the trials, `study.json`, and the settings of the best in `best.toml`; what it holds
            of the same search goes on.
        trials: how many there are to be in all.
        pruner: what ends a trial early: `"median"` where it is worse than half of those before it,
            `"hyperband"` by halving their number again and again, or `"none"`.
        watch: gives who is told of a trial's epochs, from its number.
        tell: called after each trial.

    Returns:
        The study; its last trial is `"running"` where it was interrupted.
    """
    optuna = _optuna()
    checks.one_of("pruner", pruner, Pruner)
    checks.whole_number("trials", trials, 1)
    base = Config.of(tree)
    base.check_values()
    graph = base.load_graph()
    if not bool(graph.val_mask.any()):
        raise ArgumentError(f"data.name={base.data['name']!r}: has no validation nodes to judge trials by")
    metric = metric_of(graph.task)
    _keep_settings(out, base, space, pruner)
    storage = optuna.storages.RDBStorage(f"sqlite:///{(out / STORE).resolve()}")
    study = optuna.create_study(
        storage=storage,
        study_name=NAME,
        direction="maximize" if metric.higher_is_better else "minimize",
        pruner=_pruner(optuna, pruner, base.training["epochs"]),
        load_if_exists=True,
    )

    def found() -> Study:
        names = {key: getattr(base, key)["name"] for key in ("data", "model", "method")}
        if base.method.get("spider") is not None:
            names["method"] = method_title(names["method"], base.method["spider"])
        kept = [_trial_of(each) for each in study.trials]
        state = Study(metric.name, metric.higher_is_better, **names, space=dict(space.texts), trials=kept)
        return Study(**{**vars(state), "importance": _importance(optuna, study)})

    write_study(out, found())
    while (trial := _next(optuna, study, space, trials, base.training["seed"])) is not None:
        folder = trial_folder(out, trial.number + 1)
        config = Config.of(merged(tree, at_places(trial.params)))
        begun = (folder / METRICS).exists()
        try:
            with nullcontext([]) if watch is None else watch(trial.number + 1) as told:
                result = train_run(config, folder, begun, [_Pruning(study, trial), *told], graph)
        except (ArgumentError, DivergedError) as error:  # settings that do not work are an answer too
            trial.set_user_attr(OUTCOME, {"error": str(error)})
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            if result.stopped == "interrupted":
                break
            _conclude(optuna, study, trial, result)
        # They are as large as the histories, and the trial will not go on.
        for large in (CHECKPOINTS, HISTORIES):
            shutil.rmtree(folder / large, ignore_errors=True)
        state = found()
        write_study(out, state)
        if state.best is not None:
            _copy(trial_folder(out, state.best.number) / CONFIG, out / BEST)
        if tell is not None:
            tell(state, state.trials[trial.number])
    state = found()
    write_study(out, state)
    failed = [trial.error for trial in state.trials if trial.error]
    if state.best is None and len(failed) == len(state.trials):
        raise RunError(f"{out}: none of its {len(failed)} trials could be trained; the last: {failed[-1]}")
    return state


def _copy(source: Path, file: Path) -> None:
    content = source.read_bytes()
    write_atomically(file, lambda opened: opened.write(content))


class _Pruning(Callback):
    """Reports every evaluation, and ends a trial that is not worth going on with."""

    def __init__(self, study: optuna.Study, trial: optuna.Trial) -> None:
        self._study, self._trial = study, trial
        self._known = set(study.trials[trial.number].intermediate_values)  # from before it was interrupted

    def on_start(self, training: Training) -> None:
        if training.records and self._trial.should_prune():
            training.stop("pruned")

    def on_epoch(self, training: Training, record: Record) -> None:
        if record.val is None or math.isnan(record.val):
            return
        if record.epoch not in self._known:
            self._trial.report(record.val, record.epoch)
        if self._trial.should_prune():
            training.stop("pruned")


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ArgumentError("tune: Optuna is not installed; pip install 'lmc[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _pruner(optuna: Any, name: Pruner, epochs: int) -> Any:
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=max(epochs, 1))
    if name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=ENOUGH, n_warmup_steps=epochs // 5)
    return optuna.pruners.NopPruner()


def _keep_settings(out: Path, base: Config, space: SearchSpace, pruner: str) -> None:
    """Write down what is searched, or see that it is the same as before."""
    tree = {"search": dict(space.texts), "tune": {"pruner": pruner}, **base.to_tree()}
    asked = {name: {k: v for k, v in table.items() if v is not None} for name, table in tree.items()}
    if (out / SETTINGS).exists():
        if Config.read(out / SETTINGS) != asked:
            raise ArgumentError(
                f"{out}: holds a search with other settings, see {SETTINGS}; choose another folder"
            )
        return
    check_holds_no_run(out)
    check_unused(out, (STORE, BEST, "report.html"), SETTINGS, "a search")
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / SETTINGS, lambda file: file.write(tomli_w.dumps(asked).encode()))


def _next(optuna: Any, study: Any, space: SearchSpace, trials: int, seed: int) -> Any:
    """The trial that was interrupted, or a new one, or None where there are enough."""
    known = study.get_trials(deepcopy=False)
    running = [each for each in known if each.state == optuna.trial.TrialState.RUNNING]
    if not running and len(known) >= trials:
        return None
    number = running[0].number if running else len(known)
    own = (1_000_003 * seed + number) % 2**32
    study.sampler = optuna.samplers.TPESampler(n_startup_trials=ENOUGH, seed=own)
    # Optuna has no public way back to a trial.
    trial = optuna.trial.Trial(study, running[0]._trial_id) if running else study.ask()
    for place, tried in space.ranges.items():  # of one that was interrupted, the same values again
        _suggest(trial, place, tried)
    return trial


def _suggest(trial: optuna.Trial, place: str, tried: Range | Choices) -> None:
    if isinstance(tried, Choices):
        trial.suggest_categorical(place, tried.values)
    elif tried.whole:
        trial.suggest_int(place, int(tried.low), int(tried.high), log=tried.log)
    else:
        trial.suggest_float(place, tried.low, tried.high, log=tried.log)


def _conclude(optuna: Any, study: Any, trial: Any, result: Result) -> None:
    states = optuna.trial.TrialState
    best = None if result.best is None else result.best.val
    known: dict[str, Any] = {
        "val": best,
        "test": None if result.best is None else result.best.test,
        "epochs": len(result.history),
        "seconds": result.seconds,
    }
    if best is None or math.isnan(best):
        known["error"] = "no epoch was evaluated"
    trial.set_user_attr(OUTCOME, known)
    if "error" in known:
        study.tell(trial, state=states.FAIL)
    elif result.stopped == "pruned":
        study.tell(trial, state=states.PRUNED)
    else:
        study.tell(trial, best)


def _trial_of(each: Any) -> Trial:
    states: dict[str, State] = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed"}
    state = states.get(each.state.name, "running")
    return Trial(each.number + 1, state, each.params, **each.user_attrs.get(OUTCOME, {}))


def _importance(optuna: Any, study: Any) -> dict[str, float] | None:
    finished = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    if len(finished) < ENOUGH or len({each.value for each in finished}) == 1:
        return None
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {place: float(share) for place, share in shares.items()}
