"""Which experiments there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lmc.paper.ablation import ablation
from lmc.paper.batch_size import batch_size
from lmc.paper.beta import beta_alpha, beta_score
from lmc.paper.cost import epoch_time, memory
from lmc.paper.efficiency import efficiency
from lmc.paper.gradient_errors import gradient_errors
from lmc.paper.methods import methods
from lmc.paper.outcome import Outcome
from lmc.paper.prediction import prediction
from lmc.paper.setup import Scale
from lmc.paper.small import small
from lmc.paper.spider import spider
from lmc.paper.theory import theory
from lmc.paper.variance import variance


class Experiment(NamedTuple):
    """One table or figure of the paper."""

    source: str
    title: str
    run: Callable[[Scale], Outcome]


EXPERIMENTS: dict[str, Experiment] = {
    "prediction": Experiment("Table 1", "Prediction performance", prediction),
    "efficiency": Experiment(
        "Table 2, figure 2", "Epochs, seconds and memory to full-batch accuracy", efficiency
    ),
    "gradient-error": Experiment("Figure 3", "Relative errors of mini-batch gradients", gradient_errors),
    "batch-size": Experiment("Table 3", "GAS and LMC at small batches", batch_size),
    "ablation": Experiment("Figure 4", "What each compensation brings", ablation),
    "small": Experiment("Appendix, small graphs", "Cora, CiteSeer and PubMed", small),
    "epoch-time": Experiment("Appendix, training time", "Seconds an epoch", epoch_time),
    "memory": Experiment("Appendix, memory", "Memory and reserved messages", memory),
    "beta-alpha": Experiment("Appendix, ablation of beta", "LMC over alpha", beta_alpha),
    "beta-score": Experiment("Appendix, ablation of beta", "LMC over the score", beta_score),
    "variance": Experiment("Beyond the paper", "Balanced batches, and the β that is found", variance),
    "methods": Experiment("Beyond the paper", "Every method on the same graphs", methods),
    "theory": Experiment("Theorems 1 to 3", "The theorems in numbers", theory),
    "spider": Experiment("Section TOP-SPIDER", "Bias of TOP, rates and practice of SPIDER", spider),
}
