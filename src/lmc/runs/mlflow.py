"""The logger of MLflow."""

from __future__ import annotations

import os
import time

from lmc.runs.loggers import Logger, Settings
from lmc.training.loop import Training

_STATES = {"failed": "FAILED", "interrupted": "KILLED"}  # all else is a success


class MLflow(Logger):
    """Tells the MLflow of `MLFLOW_TRACKING_URI`, by default its own choice: a file in the working folder."""

    def begin(self, training: Training, settings: Settings, run_id: str | None) -> str:
        """Open a run of the experiment `lmc`, or of `MLFLOW_EXPERIMENT_NAME`."""
        from mlflow.entities import Param  # which takes seconds
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient()
        if run_id is None:
            run_id = self._new_run()
            params = [Param(key, str(value)) for key, value in settings.items()]
            self._client.log_batch(run_id, params=params)
        else:
            self._client.update_run(run_id, status="RUNNING")
        self._id = run_id
        # An epoch that is trained again after a resume is the same to the byte: the first one stays.
        self._logged = max((m.step for m in self._client.get_metric_history(run_id, "loss")), default=0)
        return run_id

    def _new_run(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "lmc")
        known = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if known is None else known.experiment_id
        run_name = None if self.folder is None else str(self.folder)
        return str(self._client.create_run(experiment, run_name=run_name).info.run_id)

    def log(self, values: dict[str, float], epoch: int) -> None:
        """One request for all values."""
        if epoch <= self._logged:
            return
        self._send(values, epoch)
        self._logged = epoch

    def finish(self, stopped: str, best: dict[str, float]) -> None:
        """Close the run."""
        self._send(best, self._logged)
        self._client.set_tag(self._id, "stopped", stopped)
        self._client.set_terminated(self._id, _STATES.get(stopped, "FINISHED"))

    def _send(self, values: dict[str, float], epoch: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._id, [Metric(key, value, now, epoch) for key, value in values.items()])
