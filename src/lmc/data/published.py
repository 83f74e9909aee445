"""Which data sets are published, where their files lie, and how they are fetched once."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lmc.data import planetoid, storage
from lmc.data.graph import Graph
from lmc.data.ogb_sets import OGBSet
from lmc.data.pyg_sets import GraphsWithRoles, PlanetoidSet, PyGSet, WithoutFeatures
from lmc.errors import DatasetError, GraphError
from lmc.files import one_line
from lmc.tidying import tidying


class Source(Protocol):
    """Who can download and parse a data set."""

    def download(self, folder: Path) -> None:
        """Put the raw files into `folder/raw`."""

    def parse(self, raw: Path) -> Graph:
        """The graph of the files in `raw`."""


@dataclass(frozen=True)
class Published:
    """A data set that somebody published.

    Attributes:
        source: who can download and parse it.
        home: where people find it.
        files: the names of its raw files.
        found_in: the folders that may hold these, within a root; downloads go into the first.
    """

    source: Source
    home: str
    files: tuple[str, ...]
    found_in: tuple[str, ...]

    def raw_in(self, root: Path) -> Path | None:
        """The folder of the raw files, where they are all there."""
        folders = [root / folder for folder in self.found_in]
        return next((f for f in folders if all((f / file).is_file() for file in self.files)), None)


def _planetoid(name: str) -> Published:
    folders = (f"{name.lower()}/raw", f"{name}/raw", ".")
    files = planetoid.files_of(name.lower())
    return Published(PlanetoidSet("Planetoid", name), "github.com/kimiyoung/planetoid", files, folders)


def _shchur(kind: str, name: str, file: str) -> Published:
    folders = (f"{kind.lower()}_{name.lower()}/raw", f"{name}/raw", ".")
    return Published(PyGSet(kind, name), "github.com/shchur/gnn-benchmark", (file,), folders)


def _citations(name: str, folder: str) -> Published:
    home = "github.com/abojchevski/graph2gauss"
    return Published(PyGSet("CitationFull", name), home, (f"{name}.npz",), (f"{folder}/raw",))


def _flickr(source: Source) -> Published:
    files = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
    return Published(source, "github.com/GraphSAINT/GraphSAINT", files, ("flickr/raw",))


def _ogb(name: str) -> Published:
    tables = ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list")
    files = tuple(f"{table}.csv.gz" for table in tables)
    return Published(
        OGBSet(name), "ogb.stanford.edu (with split/ beside raw/)", files, (f"{name.replace('-', '_')}/raw",)
    )


_REDDIT = ("reddit_data.npz", "reddit_graph.npz")
_PPI = tuple(
    f"{part}_{name}"
    for part in ("train", "valid", "test")
    for name in ("feats.npy", "graph_id.npy", "graph.json", "labels.npy")
)

PUBLISHED: dict[str, Published] = {
    "cora": _planetoid("Cora"),
    "citeseer": _planetoid("CiteSeer"),
    "pubmed": _planetoid("PubMed"),
    "amazon-photo": _shchur("Amazon", "Photo", "amazon_electronics_photo.npz"),
    "amazon-computers": _shchur("Amazon", "Computers", "amazon_electronics_computers.npz"),
    "coauthor-cs": _shchur("Coauthor", "CS", "ms_academic_cs.npz"),
    "coauthor-physics": _shchur("Coauthor", "Physics", "ms_academic_phy.npz"),
    "cora-full": _citations("cora", "cora_full"),
    "cora-ml": _citations("cora_ml", "cora_ml"),
    "citeseer-full": _citations("citeseer", "citeseer_full"),
    "pubmed-full": _citations("pubmed", "pubmed_full"),
    "dblp": _citations("dblp", "dblp"),
    "flickr": _flickr(PyGSet("Flickr")),
    "flickr-graph": _flickr(WithoutFeatures("Flickr")),
    "reddit": Published(PyGSet("Reddit"), "data.dgl.ai/dataset/reddit.zip", _REDDIT, ("reddit/raw",)),
    "ppi": Published(GraphsWithRoles("PPI"), "data.dgl.ai/dataset/ppi.zip", _PPI, ("ppi/raw",)),
    "ogbn-arxiv": _ogb("ogbn-arxiv"),
    "ogbn-products": _ogb("ogbn-products"),
}
ALIASES = {"arxiv": "ogbn-arxiv", "products": "ogbn-products"}
_NO_FILE_NEEDED = "`lmc inspect synthetic` needs no file"


def published_name(name: str) -> str | None:
    """The data set that a name stands for, whatever its case and its separators.

    >>> [published_name(name) for name in ("Cora", "amazon_photo", "CoauthorCS", "arxiv", "nowhere")]
    ['cora', 'amazon-photo', 'coauthor-cs', 'ogbn-arxiv', None]
    """
    known = {_letters(known): known for known in PUBLISHED} | ALIASES
    return known.get(_letters(name))


def _letters(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def is_in(name: str, root: Path) -> bool:
    """Whether a folder has the files of one of `PUBLISHED`."""
    return _is_kept(name, root) or PUBLISHED[name].raw_in(root) is not None


def load(name: str, root: Path) -> Graph:
    """The graph of one of `PUBLISHED`, whose files are in a folder, or are downloaded into it.

    The parsed graph is kept there, as a folder that opens at once the next time.
    """
    if _is_kept(name, root):
        return Graph.open(_kept(name, root))
    one = PUBLISHED[name]
    raw = one.raw_in(root) or _downloaded(name, root)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            graph = one.source.parse(raw)
    except DatasetError as error:
        raise DatasetError(f"{name}: {error}") from None
    except GraphError as error:
        raise GraphError(f"{name} in {raw}: {error}") from None
    except Exception as error:  # a parser of someone else's
        folder = raw.parent if raw.name == "raw" else raw
        rule = "remove them to have them downloaded again"
        raise DatasetError(f"{name}: the files in {folder} cannot be read ({_why(error)}); {rule}") from None
    with contextlib.suppress(GraphError):  # a disk that cannot be written costs time, not the graph
        graph.save(_kept(name, root))
    return graph


def _kept(name: str, root: Path) -> Path:
    return root / name.replace("-", "_") / "graph"


def _is_kept(name: str, root: Path) -> bool:
    return (_kept(name, root) / storage.HEADER).is_file()


def _downloaded(name: str, root: Path) -> Path:
    """The folder of raw files that have just been downloaded, all of them or none."""
    one = PUBLISHED[name]
    raw = root / one.found_in[0]
    print(f"lmc: downloading {name} into {raw}", file=sys.stderr)
    made = [folder for folder in (raw, raw.parent, root) if not folder.exists()]
    try:
        raw.mkdir(parents=True, exist_ok=True)
        partial = tempfile.TemporaryDirectory(dir=raw.parent)
        with tidying(partial.cleanup), contextlib.redirect_stdout(sys.stderr):
            one.source.download(Path(partial.name))
            for file in sorted(Path(partial.name).rglob("*")):
                target = raw.parent / file.relative_to(partial.name)
                if file.is_dir():
                    target.mkdir(exist_ok=True)
                else:
                    os.replace(file, target)
        missing = [file for file in one.files if not (raw / file).is_file()]
        if missing:
            raise FileNotFoundError(f"{missing[0]} is not in the download")
    except DatasetError as error:
        raise DatasetError(f"{name}: {error}; {_NO_FILE_NEEDED}") from None
    except Exception as error:  # a network or a disk of someone else's
        raise DatasetError(_not_downloaded(name, raw, error)) from None
    finally:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()  # only what is empty goes
    return raw


def _not_downloaded(name: str, raw: Path, error: Exception) -> str:
    one = PUBLISHED[name]
    missing = [raw / file for file in one.files if not (raw / file).is_file()] or [raw]
    put = "it" if len(missing) == 1 else f"it and {len(missing) - 1} more"
    rule = f"put {put} there from {one.home}, or name another folder with root= or LMC_DATA"
    reason = f"{missing[0]} is missing and cannot be downloaded ({_why(error)})"
    return f"{name}: {reason}; {rule}; {_NO_FILE_NEEDED}"


def _why(error: Exception) -> str:
    file = getattr(error, "filename", None)
    return f"{type(error).__name__}: {one_line(error)}{f', {file}' if file else ''}"
