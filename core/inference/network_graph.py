"""A released network as an ONNX graph that is built here from its layers: for predictions, and to take elsewhere.

The service that predicts imports no torch. The graph's input is `values`, shape (records, ...): an array column's
numbers in declared units, or the encoded features of ordinary columns. Its output is `scores`, one a class, and beside
it `probabilities`, or one `value` in the target's units. All of it is in single precision, with operators of opset 18.
"""

from collections.abc import Iterator
from functools import singledispatchmethod
from math import prod, sqrt
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from core.data.arrays import scale_of
from core.data.columns import centre_of
from core.models.design import Design
from core.models.network.layers import (
    Activation,
    Attention,
    Conv2d,
    Embedding,
    Flatten,
    GroupNorm,
    Layer,
    LayerNorm,
    Linear,
    MeanOver,
    Pool2d,
    Reshape,
    Residual,
    Shape,
)
from core.models.network.model import NetworkModel

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET: Final = 18
IR_VERSION: Final = 9
"""Of files that every runtime since 2023 reads."""
NORM_FLOOR: Final = 1e-5
"""Added to variances before their root, in both normalisations."""
Single = NDArray[np.float32]


def make_graph(
    model: NetworkModel,
    design: Design,
    tensors: dict[str, Single],
    metadata: dict[str, str],
    *,
    encoded: bool = False,
) -> "ModelProto":
    """Return a network as an ONNX model.

    Args:
        model: filled.
        design: of its columns and target.
        tensors: its parameters, by the names of `parameters_of`.
        metadata: texts to keep in the file.
        encoded: `values` are encoded already, an array's too.
    """
    builder = _Builder(tensors)
    whole = design.array is not None and design.array.of == "token"
    scores = builder.layers(model.layers, "values" if encoded else builder.encoded("values", design), design.shape, "")
    builder.name(scores, "scores")
    if model.loss == "cross_entropy":
        builder.name(builder.add("Softmax", "scores", axis=1), "probabilities")
        outputs = {"scores": design.classes, "probabilities": design.classes}
    else:
        scaled = builder.add("Mul", "scores", builder.constant(np.float32(design.target.scale)))
        builder.name(builder.add("Add", scaled, builder.constant(np.float32(design.target.centre))), "value")
        outputs = {"scores": 1, "value": 1}
    return builder.model(design.shape, outputs, whole=whole, metadata=metadata)


class _Builder:
    """Collects nodes and constants."""

    def __init__(self, tensors: dict[str, Single]) -> None:
        self._tensors = tensors
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._made = 0

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:  # noqa: ANN401 - a name, or several
        """Add a node; return the name of its output, or of all of them."""
        from onnx import helper  # noqa: PLC0415 - only those who build a graph pay for the library

        names = [self._name() for _ in range(outputs)]
        self._nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def name(self, given: str, wanted: str) -> None:
        """Give a value the name of an output."""
        from onnx import helper  # noqa: PLC0415 - as above

        self._nodes.append(helper.make_node("Identity", [given], [wanted]))

    def constant(self, value: Any, name: str | None = None) -> str:  # noqa: ANN401 - an array, or what makes one
        """Keep a tensor in the file; return its name."""
        from onnx import numpy_helper  # noqa: PLC0415 - as above

        name = name or self._name()
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def sizes(self, *sizes: int) -> str:
        """Keep a list of sizes or axes; return its name."""
        return self.constant(np.array(sizes, dtype=np.int64))

    def model(self, shape: Shape, outputs: dict[str, int], *, whole: bool, metadata: dict[str, str]) -> "ModelProto":
        """Return what was collected."""
        from onnx import TensorProto, helper  # noqa: PLC0415 - as above

        # Tokens are the indices of a Gather, which takes whole numbers.
        kind = TensorProto.INT64 if whole else TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes,
            "network",
            [helper.make_tensor_value_info("values", kind, ["records", *shape])],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, ["records", size])
                for name, size in outputs.items()
            ],
            self._constants,
        )
        made = helper.make_model(
            graph, producer_name="farthing", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
        helper.set_model_props(made, metadata)
        return made

    def encoded(self, values: str, design: Design) -> str:
        """Return an array's numbers as a network takes them; ordinary columns and tokens come as they are."""
        array = design.array
        if array is None or array.of == "token":
            return values
        centred = self.add("Sub", values, self.constant(np.float32(centre_of(array))))
        return str(self.add("Div", centred, self.constant(np.float32(scale_of(array)))))

    def layers(self, layers: tuple[Layer, ...], x: str, given: Shape, under: str) -> str:
        """Add layers one after the other."""
        for place, layer in enumerate(layers):
            x = self.layer(layer, x, given, f"{under}{place}.")
            given = layer.output(given)
        return x

    def _name(self) -> str:
        self._made += 1
        return f"_{self._made}"

    def _own(self, name: str) -> str:
        return self.constant(self._tensors[name], name)

    @singledispatchmethod
    def layer(self, layer: Any, x: str, given: Shape, under: str) -> str:  # noqa: ANN401 - one of the closed list
        """Add one layer; return the name of what it makes."""
        raise AssertionError(f"no layer {layer!r}, {x}, {given}, {under}")

    @layer.register
    def _(self, layer: Linear, x: str, given: Shape, under: str) -> str:
        del given
        return self._affine(x, f"{under}weight", f"{under}bias" if layer.bias else None)

    def _affine(self, x: str, weight: str, bias: str | None) -> str:
        """Multiply the last axis by a matrix, and add."""
        # torch keeps a weight as (outputs, inputs).
        turned = self.add("Transpose", self._own(weight), perm=[1, 0])
        made = self.add("MatMul", x, turned)
        return made if bias is None else str(self.add("Add", made, self._own(bias)))

    @layer.register
    def _(self, layer: Conv2d, x: str, given: Shape, under: str) -> str:
        del given
        own = [self._own(f"{under}weight"), *([self._own(f"{under}bias")] if layer.bias else [])]
        return str(self.add("Conv", x, *own, strides=[layer.stride] * 2, pads=[layer.padding] * 4))

    @layer.register
    def _(self, layer: Pool2d, x: str, given: Shape, under: str) -> str:
        del given, under
        settings: dict[str, Any] = {
            "kernel_shape": [layer.kernel] * 2,
            "strides": [layer.stride or layer.kernel] * 2,
            "pads": [layer.padding] * 4,
        }
        if layer.of == "max":
            return str(self.add("MaxPool", x, **settings))
        # torch's average counts the padding; ONNX's default does not.
        return str(self.add("AveragePool", x, count_include_pad=1, **settings))

    @layer.register
    def _(self, layer: MeanOver, x: str, given: Shape, under: str) -> str:
        del layer, under
        axes = (2, 3) if len(given) == 3 else (1,)  # noqa: PLR2004 - channels, height, width
        return str(self.add("ReduceMean", x, self.sizes(*axes), keepdims=0))

    @layer.register
    def _(self, layer: Flatten, x: str, given: Shape, under: str) -> str:
        del layer, under
        return self._shaped(x, prod(given))

    @layer.register
    def _(self, layer: Reshape, x: str, given: Shape, under: str) -> str:
        del given, under
        return self._shaped(x, *layer.shape)

    def _shaped(self, x: str, *shape: int) -> str:
        return str(self.add("Reshape", x, self.sizes(-1, *shape)))

    @layer.register
    def _(self, layer: Activation, x: str, given: Shape, under: str) -> str:
        del given, under
        if layer.of == "silu":
            return str(self.add("Mul", x, self.add("Sigmoid", x)))
        if layer.of == "gelu":
            inner = self.add("Erf", self.add("Mul", x, self.constant(np.float32(1 / sqrt(2)))))
            half = self.add("Mul", x, self.constant(np.float32(0.5)))
            return str(self.add("Mul", half, self.add("Add", inner, self.constant(np.float32(1)))))
        return str(self.add(layer.of.capitalize(), x))

    @layer.register
    def _(self, layer: GroupNorm, x: str, given: Shape, under: str) -> str:
        grouped = self._shaped(x, layer.groups, prod(given) // layer.groups)
        made = self._shaped(self._standard(grouped), *given)
        return self._scaled(made, under, (given[0], 1, 1)) if layer.affine else made

    @layer.register
    def _(self, layer: LayerNorm, x: str, given: Shape, under: str) -> str:
        del given
        made = self._standard(x)
        return self._scaled(made, under, None) if layer.affine else made

    def _standard(self, x: str) -> str:
        """Bring the last axis to mean 0 and variance 1."""
        last = self.sizes(-1)
        centred = self.add("Sub", x, self.add("ReduceMean", x, last, keepdims=1))
        variance = self.add("ReduceMean", self.add("Mul", centred, centred), last, keepdims=1)
        root = self.add("Sqrt", self.add("Add", variance, self.constant(np.float32(NORM_FLOOR))))
        return str(self.add("Div", centred, root))

    def _scaled(self, x: str, under: str, shape: Shape | None) -> str:
        """Multiply by the layer's scale and add its shift, broadcast from that shape."""
        parts = [self._own(f"{under}{name}") for name in ("weight", "bias")]
        if shape is not None:
            parts = [self.add("Reshape", part, self.sizes(*shape)) for part in parts]
        return str(self.add("Add", self.add("Mul", x, parts[0]), parts[1]))

    @layer.register
    def _(self, layer: Embedding, x: str, given: Shape, under: str) -> str:
        del given
        made = self.add("Gather", self._own(f"{under}weight"), x, axis=0)
        return str(self.add("Add", made, self._own(f"{under}position"))) if layer.positions else str(made)

    @layer.register
    def _(self, layer: Attention, x: str, given: Shape, under: str) -> str:
        positions, features = given
        width = features // layer.heads
        joint = self._affine(x, f"{under}query_key_value.weight", f"{under}query_key_value.bias")
        split = self.add("Split", joint, outputs=3, axis=2, num_outputs=3)
        query, key, value = (
            self.add("Transpose", self._shaped(one, positions, layer.heads, width), perm=perm)
            for one, perm in zip(split, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        scores = self.add("Mul", self.add("MatMul", query, key), self.constant(np.float32(1 / sqrt(width))))
        if layer.causal:
            later = np.triu(np.full((positions, positions), -np.inf, dtype=np.float32), k=1)
            scores = self.add("Add", scores, self.constant(later))
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=3), value)
        joined = self._shaped(self.add("Transpose", mixed, perm=[0, 2, 1, 3]), positions, features)
        return self._affine(joined, f"{under}output.weight", f"{under}output.bias")

    @layer.register
    def _(self, layer: Residual, x: str, given: Shape, under: str) -> str:
        return str(self.add("Add", x, self.layers(layer.layers, x, given, under)))


def split(flat: Single, named: Iterator[tuple[str, Shape]]) -> dict[str, Single]:
    """Cut one vector into tensors, in order."""
    tensors, start = {}, 0
    for name, shape in named:
        tensors[name] = flat[start : start + prod(shape)].reshape(shape)
        start += prod(shape)
    assert start == len(flat), "every number belongs to a tensor"
    return tensors
