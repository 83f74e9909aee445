"""Methods by name and options: from settings to an estimator, with `Spider` on top where they ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature

from lmc import checks, typed
from lmc.errors import ArgumentError
from lmc.estimators.estimator import Estimator
from lmc.estimators.spider import Spider
from lmc.runs.registry import METHODS
from lmc.runs.sections import Settings, check_objects, check_section, defaults

EVERY, LARGE = "spider", "spider_large"
"""What settings of any method may say: `every` and `large` of `lmc.Spider`."""


def check_method(settings: Settings) -> None:
    """Every name and every type of a `[method]` section."""
    check_objects("method", settings)
    method = METHODS[checks.one_of("method.name", settings["name"], METHODS)]
    own, spider = _split(settings)
    check_section("method", own, method.load(), [*_options(settings["name"]), EVERY, LARGE])
    for key, value in spider.items():
        if typed.read(f"method.{key}", value, int | None) is not None:
            checks.whole_number(f"method.{key}", value, 1)
    if spider.get(LARGE) is not None and spider.get(EVERY) is None:
        raise ArgumentError(f"method.{LARGE}={spider[LARGE]}: is of method.{EVERY}, which is not given")


def resolved(settings: Settings) -> Settings:
    """With every default written out."""
    return {"name": settings["name"]} | defaults(_options(settings["name"])) | settings


def understood_by(name: str, settings: Settings) -> Settings:
    """Those of the settings that the method of a name takes.

    >>> understood_by("gas", {"alpha": 0.4, "precision": "half", "spider": 10})
    {'precision': 'half', 'spider': 10}
    """
    known = {*_options(name), EVERY} | ({LARGE} if METHODS[name].clusters else set())
    return {key: value for key, value in settings.items() if key in known}


def on_top(name: object, settings: Settings) -> Settings:
    """Those of the settings that are of no method, and stay with another, of this name.

    >>> on_top("gas", {"name": "lmc", "alpha": 0.4, "spider": 10})
    {'spider': 10}
    """
    return understood_by(name, _split(settings)[1]) if isinstance(name, str) and name in METHODS else {}


def built(settings: Settings) -> Estimator:
    """The estimator of a `[method]` section.

    >>> built({"name": "gas", "spider": 10})
    Spider(inner=GAS(precision='full'), every=10, large=None)
    """
    own, spider = _split(settings)
    inner = METHODS[own.pop("name")].load()(**own)
    every = spider.get(EVERY)
    return inner if every is None else Spider(inner, every, spider.get(LARGE))


def _split(settings: Settings) -> tuple[Settings, Settings]:
    """What is of the method itself, and what is of any."""
    own = {key: value for key, value in settings.items() if key not in (EVERY, LARGE)}
    return own, {key: value for key, value in settings.items() if key not in own}


def _options(name: str) -> Mapping[str, Parameter]:
    return signature(METHODS[name].load()).parameters
