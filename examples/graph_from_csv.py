"""Your own graph from CSV files: string ids, class names, unlabelled nodes; predictions by id.

The files are those of a shop, made up here: customers who bought the same things are joined, and a fifth of
them is labelled. `lmc import` on the command line does the same. Writes graph_from_csv.png: how sure the
model is of customers that nobody has labelled.
"""

import csv
import tempfile
from pathlib import Path

import matplotlib
import numpy as np
import torch

import lmc

matplotlib.use("Agg")
import matplotlib.pyplot as plt

KINDS = ("baker", "gardener", "reader")
random = np.random.default_rng(0)
names = [f"customer-{number:04}" for number in range(1500)]
kind = random.integers(0, 3, len(names))
likes = np.eye(3)[kind] * 0.6 + random.normal(size=(len(names), 3))
pairs = random.integers(0, len(names), (20_000, 2))
pairs = pairs[(kind[pairs[:, 0]] == kind[pairs[:, 1]]) | (random.random(len(pairs)) < 0.15)]
pairs = np.unique(pairs, axis=0)  # a pair that is there twice would be two edges, with a warning


def write(file: Path, head: list[str], rows: list[list[object]]) -> Path:
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([head, *rows])
    return file


with tempfile.TemporaryDirectory() as folder:
    place = Path(folder)
    edges = write(place / "edges.csv", ["from", "to"], [[names[a], names[b]] for a, b in pairs])
    columns = ["id", "flour", "seeds", "books"]
    features = write(place / "x.csv", columns, [[names[i], *row] for i, row in enumerate(likes.tolist())])
    known = [[names[i], KINDS[kind[i]]] for i in range(0, len(names), 5)]
    labels = write(place / "y.csv", ["id", "label"], known)
    graph = lmc.read_tables(edges, features, labels, undirected=True)
print(graph)

torch.manual_seed(0)
model = lmc.GCN(graph.num_features, 32, graph.num_classes, layers=2, dropout=0.3)
result = lmc.fit(graph, model, lmc.LMC(), parts=20, parts_per_batch=5, epochs=30, lr=1e-2)

chance = lmc.predict(graph, model).softmax(dim=1)
unlabelled = (graph.y < 0).nonzero().flatten()
for node in unlabelled[:3].tolist():
    print(
        graph.id[node], "is a", graph.class_names[int(chance[node].argmax())], f"({chance[node].max():.2f})"
    )
right = chance.argmax(dim=1).numpy() == kind
print(f"of {len(unlabelled)} customers without a label, {right[unlabelled].mean():.1%} are right")

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
sure = chance[unlabelled].max(dim=1).values.numpy()
for name, part in (("right", right[unlabelled]), ("wrong", ~right[unlabelled])):
    axes.hist(sure[part], bins=np.linspace(0.3, 1, 29), label=name, alpha=0.8)
axes.set(xlabel="probability of the predicted class", ylabel="customers", title="Nobody has labelled these")
axes.legend()
figure.savefig("graph_from_csv.png", dpi=120)
