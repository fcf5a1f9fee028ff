"""Vector operations per element of the elementwise operators that foreign files name."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npusim.workload.vector_counts import OpCounts

_ONE: Mapping[str, str] = MappingProxyType(
    {
        "add": "add sub rsub neg abs sign floor ceil round bitwise_and bitwise_or logical_and "
        "logical_or logical_not logical_xor and or not xor eq ne lt le gt ge equal greater less "
        "greaterorequal lessorequal where masked_fill isnan isinf nan_to_num cumsum shift mod",
        "mul": "mul square triu tril dropout",
        "max": "max min maximum minimum clamp clamp_min clamp_max clip relu threshold "
        "threshold_backward relu6 leaky_relu leakyrelu prelu hardtanh",
        "div": "div reciprocal true_divide floor_divide remainder",
        "exp": "exp exp2 log log2 log1p expm1",
        "rsqrt": "rsqrt sqrt",
        "tanh": "tanh erf sin cos tan atan sinh cosh",
        "convert": "cast to",
    }
)

#: operations per element of the output
PER_ELEMENT: Mapping[str, OpCounts] = MappingProxyType(
    {name: ((op, 1),) for op, names in _ONE.items() for name in names.split()}
    | {
        "sigmoid": (("exp", 1), ("add", 1), ("div", 1)),
        "silu": (("exp", 1), ("add", 1), ("div", 1)),
        "swish": (("exp", 1), ("add", 1), ("div", 1)),
        "gelu": (("tanh", 1), ("mul", 3), ("add", 1)),
        "hardsigmoid": (("mul", 1), ("add", 1), ("max", 2)),
        "hardswish": (("mul", 2), ("add", 1), ("max", 2)),
        "softplus": (("exp", 2), ("add", 1)),
        "mish": (("exp", 2), ("add", 1), ("tanh", 1), ("mul", 1)),
        "elu": (("exp", 1), ("add", 1), ("mul", 1), ("max", 1)),
        "pow": (("mul", 1),),
        "addcmul": (("mul", 2), ("add", 1)),
        "addcdiv": (("mul", 1), ("div", 1), ("add", 1)),
        "lerp": (("mul", 1), ("add", 2)),
        "sigmoid_backward": (("mul", 2), ("add", 1)),
        "tanh_backward": (("mul", 2), ("add", 1)),
        "silu_backward": (("exp", 1), ("add", 2), ("div", 1), ("mul", 3)),
        "gelu_backward": (("tanh", 1), ("mul", 6), ("add", 3)),
        "quantizelinear": (("mul", 1), ("convert", 1)),
        "dequantizelinear": (("convert", 1), ("mul", 1)),
    }
)

#: names by the operations per element of the input
_REDUCED: tuple[tuple[str, OpCounts], ...] = (
    ("sum mean reducesum reducemean nansum", (("add", 1),)),
    ("amax amin argmax argmin reducemax reducemin topk any", (("max", 1),)),
    ("norm var std reducel2 reducesumsquare prod reduceprod", (("mul", 1), ("add", 1))),
)

#: operations per element of the input
REDUCTIONS: Mapping[str, OpCounts] = MappingProxyType(
    {name: counts for names, counts in _REDUCED for name in names.split()}
)
