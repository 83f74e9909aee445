"""Inductive prediction: nodes that were not there in training, with and without their edges.

Half of the graph is known when the model is trained. Then the other nodes arrive, with features and edges
but no labels, and the same weights predict them. Writes new_nodes.png: accuracy on new nodes by how much is
known of them.
"""

import matplotlib
import torch

import lmc

matplotlib.use("Agg")
import matplotlib.pyplot as plt

later = lmc.synthetic(nodes=10_000)  # the graph as it will be
known = torch.arange(later.num_nodes) % 2 == 0

# -- then: the part that is known, under ids of its own -----------------------------------------------------
source, target = later.to_pyg().edge_index
inside = known[source] & known[target]
number = known.cumsum(0) - 1
masks = (mask[known] for mask in (later.train_mask, later.val_mask, later.test_mask))
edges = torch.stack([number[source[inside]], number[target[inside]]])
graph = lmc.Graph(edges, later.x[known], later.y[known], *masks)

torch.manual_seed(0)
model = lmc.GCN(graph.num_features, 64, graph.num_classes, layers=2, dropout=0.3)
lmc.fit(graph, model, lmc.LMC(), parts=40, parts_per_batch=10, epochs=15, lr=1e-2)

# -- now: the new nodes arrive; nothing is trained again, and nobody has labelled them ----------------------
new = (~known).nonzero().flatten()
arrived = lmc.Graph(torch.stack([source, target]), later.x)
alone = lmc.Graph(torch.empty(2, 0, dtype=torch.long), later.x)


def accuracy(graph: lmc.Graph) -> float:
    predicted = lmc.predict(graph, model, nodes=new).argmax(dim=1)
    return float((predicted == later.y[new]).float().mean())


found = {"features alone": accuracy(alone), "features and edges": accuracy(arrived)}
for name, value in found.items():
    print(f"new nodes, {name}: {value:.3f}")

figure, axes = plt.subplots(figsize=(5, 2.4), layout="constrained")
axes.barh(list(found), list(found.values()), 0.5)
axes.set(xlabel="accuracy on new nodes", xlim=(0, 1))
figure.savefig("new_nodes.png", dpi=120)
