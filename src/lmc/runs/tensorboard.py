"""Metrics for TensorBoard, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lmc.errors import ArgumentError
from lmc.training.callbacks import Callback
from lmc.training.loop import Training
from lmc.training.records import Record


class TensorBoard(Callback):
    """Writes loss, metrics, seconds and learning rate of every epoch to a folder."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            way = "pip install 'lmc[tensorboard]'"
            raise ArgumentError(f"--tensorboard: TensorBoard is not installed; {way}") from None
        self._open: Callable[[], Any] = partial(SummaryWriter, str(folder))

    def on_start(self, training: Training) -> None:
        """Open the file, now that the folder is the run's."""
        self._writer = self._open()

    def on_epoch(self, training: Training, record: Record) -> None:
        """Write the record."""
        values = {"loss": record.loss, "seconds": record.seconds, "lr": record.lr}
        values |= {
            f"{training.metric.name}/{split}": value
            for split in ("train", "val", "test")
            if (value := getattr(record, split)) is not None
        }
        for name, value in values.items():
            self._writer.add_scalar(name, value, record.epoch)
        self._writer.flush()

    def on_end(self, training: Training) -> None:
        """Close the file."""
        self._writer.close()
