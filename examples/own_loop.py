"""A loop of your own: any torch optimizer, any schedule, and an average of the weights beside it.

`lmc.fit` is this loop with more comfort. What a method needs is two calls, `bind` and `backward`. Writes
own_loop.png: loss and accuracy over epochs.
"""

import matplotlib
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import lmc

matplotlib.use("Agg")
import matplotlib.pyplot as plt

EPOCHS = 12
graph = lmc.synthetic(nodes=10_000)
clusters = lmc.partition(graph, parts=80)
torch.manual_seed(0)
model = lmc.GCN(graph.num_features, 64, graph.num_classes, layers=3, dropout=0.3)
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
optimizer = torch.optim.RAdam(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-2, total_steps=EPOCHS * 8)

estimator = lmc.LMC()
estimator.bind(model, graph)


def accuracy(model: lmc.GCN) -> float:
    right = lmc.predict(graph, model).argmax(dim=1) == graph.y  # exact, layer by layer
    return float(right[graph.val_mask].float().mean())


curves: dict[str, list[float]] = {"loss": [], "weights of the last step": [], "averaged weights": []}
for epoch in range(EPOCHS):
    model.train()
    losses = []
    batches = lmc.batches(graph, clusters, parts_per_batch=10, epoch=epoch)
    for batch in lmc.prefetch(batches, estimator.prepare):  # the next one is built while this one trains
        optimizer.zero_grad()
        losses.append(estimator.backward(batch))  # fills .grad with the estimate of the full gradient
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        average.update_parameters(model)
    curves["loss"].append(sum(losses) / len(losses))
    curves["weights of the last step"].append(accuracy(model))
    curves["averaged weights"].append(accuracy(average.module))
    print(epoch + 1, " ".join(f"{name} {values[-1]:.3f} " for name, values in curves.items()))

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
left.plot(range(1, EPOCHS + 1), curves.pop("loss"), color="tab:gray")
left.set(xlabel="epoch", ylabel="loss")
for name, curve in curves.items():
    right.plot(range(1, EPOCHS + 1), curve, label=name)
right.set(xlabel="epoch", ylabel="validation accuracy")
right.legend()
figure.savefig("own_loop.png", dpi=120)
