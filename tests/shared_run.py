"""One of several processes that share runs: `python shared_run.py FOLDER CASE...`, a run each."""

import hashlib
import json
import sys
from pathlib import Path

import torch

import lmc
from lmc.torch_processes import joined
from test_resumed import StopAt

GRAPH = lmc.synthetic(nodes=400, features=8, classes=4)
DIRECTED = lmc.Graph(
    torch.stack([torch.arange(400), (7 * torch.arange(400) + 3) % 400]),
    GRAPH.x,
    GRAPH.y,
    GRAPH.train_mask,
    GRAPH.val_mask,
)


def gcn(graph):
    return lmc.GCN(8, 8, graph.num_classes, layers=3, norm="batch", dropout=0.3)


def gat(graph):
    import torch_geometric

    return lmc.from_pyg(torch_geometric.nn.GAT(8, 8, 2, graph.num_classes, dropout=0.2))


CASES = {
    "lmc": (lmc.LMC, gcn, GRAPH, {"gradient_error_every": 2}),
    "gradients": (lmc.LMC, gcn, GRAPH, {"balance": "gradients", "epochs": 4}),
    "gas": (lmc.GAS, gcn, DIRECTED, {"precision": "half", "init": "exact", "balance": "none"}),
    "ahead": (
        lmc.LMC,
        gcn,
        DIRECTED,
        {"overlap": True, "shards": 8, "parts_per_batch": 1, "precision": "half", "gradient_error_every": 2},
    ),
    "fm": (lmc.GraphFM, gcn, GRAPH, {"scheduler": "plateau"}),
    "gat": (lmc.GAS, gat, GRAPH, {"precision": "int8"}),
    "cluster": (lmc.ClusterGCN, gcn, GRAPH, {"patience": 1}),
    "gd": (lmc.FullBatch, gcn, GRAPH, {}),
    "sgd": (lmc.BackwardSGD, gcn, GRAPH, {}),
    "top": (lmc.TOP, gcn, GRAPH, {}),
}


def run(name, out, **changed):
    estimator, make, graph, options = CASES[name]
    torch.manual_seed(joined().rank)  # weights are those of the first process
    options = {"parts": 16, "parts_per_batch": 2, "epochs": 3, "shards": 4, **options, **changed}
    model = make(graph)
    result = lmc.fit(graph, model, estimator(), out=out, checkpoint_seconds=0, progress=False, **options)
    digest = hashlib.blake2b(digest_size=8)
    predicted = lmc.predict(graph, model, 30, processes=joined())  # some rows at a time, each has some
    for value in [*model.parameters(), *model.buffers(), predicted]:
        digest.update(value.detach().numpy().tobytes())
    records = [[r.loss, r.train, r.val, r.test, r.gradient_error, r.found] for r in result.history]
    return {"stopped": result.stopped, "bytes": digest.hexdigest(), "records": records}


if __name__ == "__main__":
    folder, found = Path(sys.argv[1]), {}
    for case in sys.argv[2:]:
        name, _, how = case.partition(":")
        changed = {"resume": True} if how == "resume" else {}
        if how.startswith("stop"):
            changed["callbacks"] = [StopAt(int(how[4:]))]
        found[name] = run(name, folder / name, **changed)
    (folder / f"rank-{joined().rank}.json").write_text(json.dumps(found))
