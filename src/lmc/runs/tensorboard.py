"""The logger of TensorBoard."""

from __future__ import annotations

from lmc.runs.loggers import Logger, Settings
from lmc.training.loop import Training


class TensorBoard(Logger):
    """Writes to the folder `tensorboard` of the run, or to a new one in `runs/` where it has none."""

    def begin(self, training: Training, settings: Settings, run_id: str | None) -> None:
        """Open a file; epochs that will be trained again are taken back."""
        from torch.utils.tensorboard import SummaryWriter

        folder = None if self.folder is None else str(self.folder / "tensorboard")
        self._writer = SummaryWriter(folder, purge_step=training.epoch + 1)
        self._epoch = training.epoch
        rows = [f"| {key} | {value} |" for key, value in settings.items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *rows]), self._epoch)

    def log(self, values: dict[str, float], epoch: int) -> None:
        """Write at once: who looks at a run wants to see it going."""
        self._epoch = epoch
        for name, value in values.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def finish(self, stopped: str, best: dict[str, float]) -> None:
        """Close the file."""
        for name, value in best.items():
            self._writer.add_scalar(name, value, self._epoch)
        self._writer.add_text("stopped", stopped, self._epoch)
        self._writer.close()
