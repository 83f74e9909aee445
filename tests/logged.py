"""What loggers wrote, read back: each gives the values of every epoch, the settings, the best and the end."""

import json
import struct
from typing import NamedTuple


class Logged(NamedTuple):
    epochs: dict  # name -> {epoch: value}
    settings: dict
    best: dict
    stopped: str


def tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    values = {name: {e.step: e.value for e in events.Scalars(name)} for name in events.Tags()["scalars"]}
    best = {name: [*values.pop(name).values()][-1] for name in [*values] if name.startswith("best/")}
    assert all(len(events.Scalars(name)) == len(values[name]) for name in values), "no epoch is logged twice"

    def text(name):
        return events.Tensors(f"{name}/text_summary")[-1].tensor_proto.string_val[0].decode()

    rows = [line.strip("| ").split(" | ") for line in text("settings").splitlines()[2:]]
    return Logged(values, dict(rows), best, text("stopped"))


def mlflow(folder):
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    run = client.get_run(json.loads((folder / "loggers.json").read_text())["mlflow"])
    values = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    best = {name: run.data.metrics[name] for name in values if name.startswith("best/")}
    epochs = {
        name: {m.step: m.value for m in history} for name, history in values.items() if name not in best
    }
    assert all(len(epochs[name]) == len(values[name]) for name in epochs), "no epoch is logged twice"
    return Logged(epochs, run.data.params, best, f"{run.data.tags['stopped']} {run.info.status}")


def wandb(folder):
    """Of the files that `wandb sync` would send: those of one run, each time it was gone on with."""
    from wandb.proto.wandb_internal_pb2 import Record

    run_id = json.loads((folder / "loggers.json").read_text())["wandb"]
    epochs, settings, summary, end = {}, {}, {}, None
    for file in sorted(folder.glob(f"wandb/offline-run-*-{run_id}/*.wandb")):
        for raw in _wandb_records(file.read_bytes()):
            record = Record.FromString(raw)
            if record.HasField("run"):
                settings |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            if record.HasField("history"):
                items = {
                    "/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item
                }
                for name in items.keys() - {"_timestamp", "_runtime", "_step"}:
                    epochs.setdefault(name, {})[items["_step"]] = items[name]
            if record.HasField("summary"):
                summary |= {
                    item.key: json.loads(item.value_json) for item in record.summary.update if item.key
                }
            if record.HasField("exit"):
                end = record.exit.exit_code
    best = {name: value for name, value in summary.items() if name.startswith("best/")}
    return Logged(epochs, settings, best, f"{summary['stopped']} {end}")


def _wandb_records(data):
    """Blocks of 32 KB hold parts of records, each after its checksum, length and kind."""
    assert data[:4] == b":W&B"
    place, record = 7, b""
    while place + 7 <= len(data):
        left = -place % 32768
        if 0 < left < 7:  # too little for another head
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # the whole of it, or its last part
            yield record
            record = b""
