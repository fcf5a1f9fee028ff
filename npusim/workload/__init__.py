"""Models, operators and what they cost in MACs and bytes."""

from npusim.workload.counts import parameters, weight_bytes, weight_bytes_by_dtype
from npusim.workload.forward_pass import STAGES
from npusim.workload.graph import OperatorGraph
from npusim.workload.kv_cache import CachePart, KvCacheLayout, Runs, kv_bytes_per_token
from npusim.workload.loading import load_model, model_names
from npusim.workload.model_config import ModelConfig
from npusim.workload.operator import MatmulShape, Operator, OperatorKind, Phase
from npusim.workload.primitives import PRIMITIVE_SHAPES, primitive_graph
from npusim.workload.quantization import KV_DTYPES, PRECISIONS, Quantization, parse_quantization
from npusim.workload.tensor import Role, Tensor
from npusim.workload.transformer import build_graph
from npusim.workload.workload import Workload, transformer

__all__ = [
    "KV_DTYPES",
    "PRECISIONS",
    "PRIMITIVE_SHAPES",
    "STAGES",
    "CachePart",
    "KvCacheLayout",
    "MatmulShape",
    "ModelConfig",
    "Operator",
    "OperatorGraph",
    "OperatorKind",
    "Phase",
    "Quantization",
    "Role",
    "Runs",
    "Tensor",
    "Workload",
    "build_graph",
    "kv_bytes_per_token",
    "load_model",
    "model_names",
    "parameters",
    "parse_quantization",
    "primitive_graph",
    "transformer",
    "weight_bytes",
    "weight_bytes_by_dtype",
]
