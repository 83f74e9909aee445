"""How far the gradients of each method are off, and why.

An estimate misses the full gradient for two reasons. A batch is not the graph: that is the spread, which any
method on these batches has. Values outside of the batch are not known: that is the bias, where methods
differ.
Writes gradient_errors.png: both, by method, after some training.
"""

import matplotlib
import torch

import lmc

matplotlib.use("Agg")
import matplotlib.pyplot as plt

EPOCHS = 5
graph = lmc.synthetic(nodes=5_000)
clusters = lmc.partition(graph, parts=40)
methods = {
    "ClusterGCN": lmc.ClusterGCN(),
    "GAS": lmc.GAS(),
    "GraphFM": lmc.GraphFM(),
    "LMC": lmc.LMC(),
    "BackwardSGD": lmc.BackwardSGD(),
}

found = {}
for name, estimator in methods.items():
    torch.manual_seed(0)
    model = lmc.GCN(graph.num_features, 32, graph.num_classes, layers=3)
    lmc.fit(graph, model, estimator, parts=40, parts_per_batch=4, epochs=EPOCHS, lr=5e-3)
    found[name] = lmc.gradient_error(graph, model, estimator, lmc.batches(graph, clusters, 4, epoch=EPOCHS))
    errors = found[name]
    print(f"{name:12} bias {errors.bias['total']:.3f}  spread {errors.variance['total']:.3f}")

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
bias = [errors.bias["total"] for errors in found.values()]
spread = [errors.variance["total"] for errors in found.values()]
axes.bar([place - 0.2 for place in range(len(found))], bias, 0.4, label="bias: values outside")
axes.bar([place + 0.2 for place in range(len(found))], spread, 0.4, label="spread: the batch")
axes.set_xticks(range(len(found)), list(found))
axes.set(ylabel="relative to the full gradient", title=f"3-layer GCN after {EPOCHS} epochs, 4 of 40 clusters")
axes.set_ylim(top=1.3 * max(spread))
axes.legend(ncols=2)
figure.savefig("gradient_errors.png", dpi=120)
