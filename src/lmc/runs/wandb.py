"""The logger of Weights & Biases."""

from __future__ import annotations

import os

from lmc.runs.loggers import Logger, Settings
from lmc.training.loop import Training

_EXIT_CODES = {"failed": 1, "interrupted": 255}  # as W&B has them; all else is a success


class WandB(Logger):
    """Tells Weights & Biases, as its own settings say: `WANDB_MODE=offline` keeps all in the run's folder."""

    def begin(self, training: Training, settings: Settings, run_id: str | None) -> str:
        """Open a run of the project `lmc`, or of `WANDB_PROJECT`."""
        import wandb  # which takes seconds

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "lmc"),
            name=None if self.folder is None else str(self.folder),
            dir=None if self.folder is None else str(self.folder),
            config=settings,
            id=run_id,
            resume=None if run_id is None else "allow",
            settings=wandb.Settings(console="off"),  # on, it would take the terminal from the display
        )
        return str(self._run.id)

    def log(self, values: dict[str, float], epoch: int) -> None:
        """An epoch that is trained again after a resume is the same to the byte: W&B keeps the first."""
        self._run.log(values, step=epoch)

    def finish(self, stopped: str, best: dict[str, float]) -> None:
        """Close the run."""
        self._run.summary.update({**best, "stopped": stopped})
        self._run.finish(exit_code=_EXIT_CODES.get(stopped, 0))
