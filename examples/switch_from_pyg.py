"""An existing PyG script, switched over: the same model, the same parameters, one line changed.

Trains PyG's GraphSAGE by full batch, as PyG's own examples do, and by LMC on a tenth of the graph at a time;
then the trained model is used as before. Writes switch_from_pyg.png: accuracy against seconds.
"""

import time

import matplotlib
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GraphSAGE

import lmc

matplotlib.use("Agg")
import matplotlib.pyplot as plt

EPOCHS = 10
data = lmc.synthetic(nodes=10_000).to_pyg()  # your torch_geometric.data.Data


def make_model() -> GraphSAGE:
    torch.manual_seed(0)
    return GraphSAGE(data.num_features, 64, num_layers=2, out_channels=10, dropout=0.3, norm="BatchNorm")


def accuracy(model: torch.nn.Module) -> float:
    with torch.no_grad():
        predicted = model.eval()(data.x, data.edge_index).argmax(dim=1)
    return float((predicted == data.y)[data.val_mask].float().mean())


# -- before: a loop over full-batch steps -----------------------------------------------------------------
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
before, seconds = [], 0.0
for _ in range(EPOCHS):
    start = time.perf_counter()
    model.train()
    optimizer.zero_grad()
    cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()
    optimizer.step()
    seconds += time.perf_counter() - start
    before.append((seconds, accuracy(model)))

# -- after: the same model in one line --------------------------------------------------------------------
model, graph = make_model(), lmc.Graph.from_pyg(data)
result = lmc.fit(graph, lmc.from_pyg(model), lmc.LMC(), parts=40, parts_per_batch=4, epochs=EPOCHS, lr=1e-2)
after, seconds = [], 0.0
for record in result.history:
    seconds += record.seconds
    after.append((seconds, record.val))

print(f"full batch, {EPOCHS} steps:  {before[-1][1]:.3f}")
print(f"LMC, {EPOCHS} epochs:        {result.best.val:.3f}")
print(f"the PyG model itself:  {accuracy(model):.3f}")  # its parameters are the trained ones

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, curve in (("PyG, full batch", before), ("lmc.fit, LMC", after)):
    axes.plot(*zip(*curve, strict=True), marker="o", markersize=3, label=name)
axes.set(xlabel="seconds of training", ylabel="validation accuracy", title=f"GraphSAGE, {EPOCHS} epochs each")
axes.legend()
figure.savefig("switch_from_pyg.png", dpi=120)
