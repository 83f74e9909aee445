"""Run folders for tests, written by hand as a run would."""

import json
import math
import random

CONFIG = """\
[data]
name = {data}
root = "data"

[model]
name = "gcn"
hidden = 256
layers = 3

[method]
name = {method}

[training]
parts = 80
parts_per_batch = {parts_per_batch}
epochs = 50
lr = 0.01
seed = 0
"""

ENVIRONMENT = {
    "started": "2026-11-15T12:00:00",
    "lmc": "0.1.0",
    "python": "3.12.3",
    "torch": "2.9.1",
    "platform": "Linux-6.8-x86_64",
    "processor": "AMD EPYC",
    "threads": 2,
    "commit": None,
}


def lines(epochs, level=0.7, seconds=1.2, gradient_error=False, every=1):
    """Records of a run whose loss falls and whose accuracy rises to a level."""
    noise = random.Random(level)
    found = []
    for epoch in range(1, epochs + 1):
        val = level * (1 - math.exp(-epoch / 6)) + noise.gauss(0, 0.004)
        judged = epoch % every == 0
        found.append(
            {
                "epoch": epoch,
                "loss": 0.9 + 3 * math.exp(-epoch / 8) + noise.gauss(0, 0.01),
                "train": val + 0.02 if judged else None,
                "val": val if judged else None,
                "test": val - 0.01 if judged else None,
                "seconds": seconds + abs(noise.gauss(0, 0.05)),
                "memory": 1_234_000_000,
                "step_memory": 56_000_000,
                "lr": 0.01,
                "gradient_error": {"total": 0.3 / math.sqrt(epoch), "layers.0": 0.2}
                if gradient_error
                else None,
            }
        )
    return found


def summary(records, confusion=None, **changed):
    """The summary of an ended run, by its highest validation value."""
    best = max((record for record in records if record["val"] is not None), key=lambda record: record["val"])
    return {
        "metric": "accuracy",
        "higher_is_better": True,
        "task": "multiclass",
        "best": best,
        "epochs": len(records),
        "seconds": sum(record["seconds"] for record in records),
        "stopped": "finished",
        "graph": {"nodes": 169343, "edges": 2315598, "features": 128, "classes": 40},
        "parameters": 110120,
        "confusion": None if confusion is None else {"split": "test", "counts": confusion},
        **changed,
    }


def confused(classes, nodes=400):
    """Counts of a classifier that is mostly right."""
    noise = random.Random(classes)
    return [
        [
            noise.randrange(nodes // 2, nodes) if true == predicted else int(nodes / 4 * noise.random() ** 6)
            for predicted in range(classes)
        ]
        for true in range(classes)
    ]


def write_run(folder, records, ended=None, method="lmc", data="arxiv", parts_per_batch=10, environment=None):
    """Write a run folder; without `ended`, of a run that is still going."""
    folder.mkdir(parents=True)
    config = CONFIG.format(data=json.dumps(data), method=json.dumps(method), parts_per_batch=parts_per_batch)
    (folder / "config.toml").write_text(config)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "environment.json").write_text(json.dumps({**ENVIRONMENT, **(environment or {})}))
    if ended is not None:
        (folder / "summary.json").write_text(json.dumps(ended))
    return folder
