"""The document of a released network: its layers, how it was trained and what that promises.

A network has no coefficients to show, so nothing here is an estimate with an error.
"""

from collections.abc import Mapping
from typing import Any

from core.inference import sections
from core.inference.network import ReleasedNetwork, layer_table
from core.inference.released import MOCK
from core.inference.rendering import Head, declared, privacy_words
from core.inference.results import privacy_block
from core.inference.wording import claim, promise_phrase
from core.models.network.model import Lora
from farthing.schemas.documents import Document

_LOSSES = {"cross_entropy": "cross-entropy of softmax probabilities", "squared": "half the squared error"}


def summary(released: ReleasedNetwork) -> dict[str, Any]:
    """Return what there is to know of a network without its parameters."""
    return {
        "title": f"Neural network for {released.target}, differentially private",
        "optimizer": released.optimizer,
        "kind": released.kind,
        "target": released.target,
        "loss": loss_words(released),
        "n": released.units,
        "steps": released.steps,
        "status": released.status,
        "input": list(released.shape),
        "layers": layer_table(released),
        "parameters": released.count,
        "trained_parameters": released.trained,
        "trained": trained_words(released),
        "start": start_words(released),
        "training": released.training.model_dump(mode="json"),
        "coefficients": [],
        "flags": {},
        "notes": notes(released),
        "privacy": privacy_block(released.privacy),
        "methods": methods_paragraph(released),
    }


def loss_words(released: ReleasedNetwork) -> str:
    """Return the loss as a phrase."""
    assert released.model.loss is not None, "the planner fills it"
    return _LOSSES[released.model.loss]


def trained_words(released: ReleasedNetwork) -> str:
    """Return what was trained, as a phrase."""
    train = released.model.train
    if isinstance(train, Lora):
        return f"changes of rank {train.lora.rank} and the last layer"
    return {"all": "all parameters", "last": "the last layer"}[train]


def start_words(released: ReleasedNetwork) -> str:
    """Return where training started, as a phrase."""
    given = released.model.pretrained
    return "a public random stream" if given is None else f"public weights {given}"


def notes(released: ReleasedNetwork) -> list[str]:
    """Return what a reader of predictions must know."""
    said = [MOCK] if released.mock else []
    said += ["Privacy holds however training went. No error is known of these predictions: probabilities may be off."]
    if released.model.pretrained is not None:
        said.append(
            f"Training started from {released.model.pretrained}, which whoever uploaded it says is public: the promise "
            "is about this job's records alone, and not about those that the weights were made of."
        )
    if released.error_bound is not None:
        said.append(claim(released.error_bound))
    elif released.status == "stopped":
        said.append("The job was stopped before its last step.")
    return said


def methods_paragraph(released: ReleasedNetwork) -> str:
    """Return a paragraph for the methods section of a paper; every figure in it is public."""
    training, report = released.training, released.privacy
    sample = (
        ""
        if training.rate is None or training.batch is None
        else f" Each step sampled records independently, {training.batch:,} expected of {released.units:,} declared,"
        f" and added Gaussian noise of {training.sigma:.4g} times that length to their sum."
    )
    implied = "; ".join(f"{promise_phrase(one)} under {other.value}" for other, one in report.implies.items())
    return (
        f"We trained a neural network of {released.count:,} parameters ({trained_words(released)}, "
        f"{released.trained:,} numbers, from {start_words(released)}) to predict {released.target} with the "
        f"{loss_words(released)} by {released.optimizer.replace('_', ' ')} in {released.steps:,} steps. The gradient "
        f"of each record was clipped at {training.clip:.4g} (Abadi et al., 2016).{sample} Inputs were scaled by their "
        f"declared bounds. The release is differentially private with {promise_phrase(report.promise)} for "
        f"neighbouring data sets under {report.adjacency.value}{', which implies ' + implied if implied else ''}."
    )


def document(shown: Mapping[str, Any]) -> Document:
    """Return a summary as a document.

    Args:
        shown: the result of `summary`, with `model` and `job`.
    """
    caption = "The shape that each layer makes of a record, and how many parameters it has."
    table = sections.table("Layers", caption, ["Layer", "Output", "Parameters"], [*map(_cells, shown["layers"])])
    foot = [*privacy_words(shown), *(f"Note: {note}" for note in shown["notes"])]
    foot.append(f"Model {shown['model']}, job {shown['job']}.")
    return sections.document(shown["title"], _head(shown), [table], foot, shown["methods"])


def _head(shown: Mapping[str, Any]) -> Head:
    """Return the facts at the head of a summary, in the order to read them."""
    training = shown["training"]
    return [
        ("Target", shown["target"]),
        ("Records", declared(shown["n"])),
        ("Method", shown["optimizer"].replace("_", " ")),
        ("Steps", f"{shown['steps']:,} ({shown['status']})"),
        ("Batch", "-" if training["batch"] is None else f"{training['batch']:,} expected"),
        ("Noise", "-" if training["sigma"] is None else f"{training['sigma']:.4g} x clip"),
        ("Clip", f"{training['clip']:.4g}"),
        ("Parameters", f"{shown['parameters']:,}"),
        ("Trained", f"{shown['trained']}, {shown['trained_parameters']:,}"),
        ("Start", shown["start"]),
        ("Loss", shown["loss"]),
    ]


def _cells(line: Mapping[str, Any]) -> list[str]:
    settings = ", ".join(f"{name} {_plain(value)}" for name, value in line["settings"].items())
    named = f"{line['place']} {line['kind']}" + (f" ({settings})" if settings else "")
    return [named, " x ".join(map(str, line["output"])), f"{line['parameters']:,}"]


def _plain(value: object) -> str:
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)
