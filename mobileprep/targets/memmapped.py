"""Convert frozen graphs to memory-mapped models, in which large constants are mapped regions.

Source: ``convert_graphdef_memmapped_format`` of TensorFlow 1.15.
"""

from __future__ import annotations

import hmac
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.arguments import FilePath, Warn, as_warning
from mobileprep.core.files import atomic_writer
from mobileprep.core.keys import Key
from mobileprep.errors import ArtifactError, CorruptFileError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.memmapped import PREFIX, EncryptedHeader, read_header
from mobileprep.formats.wire import Buffer
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import (
    IMMUTABLE,
    REGION_NAME,
    MemmappedModel,
    check_serialized_size,
    read_graph,
)
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import PASSED_ON, only_reads
from mobileprep.graph.serde import raw_chunks, serialized_size
from mobileprep.graph.tensor import Tensor

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MINIMUM_SIZE: Final = 10_000
"""Default minimum size in bytes of constants that are mapped."""
PAGE_SIZE: Final = 4096
"""Minimum size for recipes. The system cannot drop less than a page of memory."""

_QUANTIZED: Final = frozenset(
    {DType.QUINT8, DType.QINT8, DType.QUINT16, DType.QINT16, DType.QINT32}
)
# TF_CALL_POD_TYPES of TensorFlow 1.15.
_PLAIN: Final = frozenset(
    {
        *(DType.FLOAT, DType.DOUBLE, DType.HALF, DType.BFLOAT16),
        *(DType.INT64, DType.INT32, DType.INT16, DType.UINT16, DType.INT8, DType.UINT8),
        *(DType.COMPLEX64, DType.COMPLEX128, DType.BOOL),
    }
)
_UNFIT: Final = re.compile(rb"[^A-Za-z0-9_.]")


class MemmapResult(Struct, frozen=True):
    """A memory-mapped model, and constants that need attention.

    Args:
        model: the model to write.
        quantized: names of constants that stay in the graph because of their quantized dtype.
        written: names of constants that an op may overwrite, each with the name of that op's node.
            If they are mapped, the app crashes with a segmentation fault.
    """

    model: MemmappedModel
    quantized: tuple[str, ...]
    written: tuple[tuple[str, str], ...]


def convert(
    graph: Graph, minimum_size: int = MINIMUM_SIZE, *, quantized: bool, safe: bool
) -> MemmapResult:
    """Convert a graph to a memory-mapped model. Constants in function bodies stay there.

    Args:
        minimum_size: minimum size in bytes of constants to map; at least 1.
        quantized: whether to map constants of quantized dtypes, unlike the original tool.
        safe: whether constants that an op may overwrite stay in the graph, unlike the original
            tool.
    """
    regions: list[tuple[str, Tensor]] = []
    nodes: list[Node] = []
    used: set[str] = set()
    unmapped, written = [], []
    for node in graph:
        if node.op != "Const" or not _is_large(node.attr_tensor("value"), minimum_size):
            nodes.append(node)
            continue
        tensor = node.attr_tensor("value")
        if tensor.dtype in _QUANTIZED and not quantized:
            unmapped.append(node.name)
            nodes.append(node)
            continue
        writer = _writer_over(graph, node.name)
        if writer:
            written.append((node.name, writer))
        if writer and safe:
            nodes.append(node)
            continue
        name = f"{PREFIX}{_region_name(node.name, used)}"
        regions.append((name, tensor))
        nodes.append(_immutable(node, tensor, name))
    model = MemmappedModel(graph.with_nodes(nodes), regions)
    return MemmapResult(model, tuple(unmapped), tuple(written))


def memmap(
    graph: Graph | FilePath,
    path: FilePath,
    *,
    min_size: int = MINIMUM_SIZE,
    quantized: bool = False,
    safe: bool = False,
    warn: Warn | None = None,
) -> MemmapResult:
    """Write the memory-mapped form of a frozen graph, like ``convert_graphdef_memmapped_format``.

    Args:
        graph: a graph, or the path of a frozen graph.
        path: the file to write.
        min_size: constants of fewer bytes stay in the graph; at least 1.
        quantized: map constants of quantized dtypes, too, unlike the original tool.
        safe: keep constants that an op may overwrite in the graph, unlike the original tool.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Raises:
        CorruptFileError: the file is missing or damaged.
        InvalidGraphError: the graph is malformed.
        ArtifactError: the file cannot be written.
    """
    warn = warn or as_warning
    source = graph if isinstance(graph, Graph) else read_graph(Path(graph))
    done = convert(source, min_size, quantized=quantized, safe=safe)
    write_memmapped(Path(path), done.model)
    if done.quantized:
        warn(
            f"{len(done.quantized)} constants of quantized dtypes stay in the graph, as with the "
            "original tool; 'quantized' maps them, too"
        )
    if done.written and not safe:
        name, writer = done.written[0]
        warn(
            f"the node {writer!r} may write its result to the memory of the constant {name!r}, "
            f"which ends an app with a segmentation fault ({len(done.written)} constants); run "
            "fold_constants first, or keep them in the graph with 'safe'"
        )
    return done


def write_memmapped(path: Path, model: MemmappedModel) -> None:
    """Write a memory-mapped model atomically, tensor by tensor."""
    check_serialized_size(serialized_size(model.graph), str(path))
    with atomic_writer(path) as stream:
        stream.writelines(raw_chunks(model.pieces()))


def _is_large(tensor: Tensor, minimum_size: int) -> bool:
    return tensor.dtype in _PLAIN | _QUANTIZED and tensor.nbytes >= max(minimum_size, 1)


def _writer_over(graph: Graph, name: str) -> str:
    """Return the first node that may write to a constant's memory, or an empty string."""
    seen, remaining = {name}, [name]
    while remaining:
        source = remaining.pop()
        for user in graph.consumers.get(source, ()):
            indices = [i for i, ref in enumerate(user.data_inputs) if ref.node == source]
            if user.op in PASSED_ON:
                if indices and user.name not in seen:
                    seen.add(user.name)
                    remaining.append(user.name)
            elif not all(only_reads(user.op, i) for i in indices):
                return user.name
    return ""


def _region_name(node: str, used: set[str]) -> str:
    """Return a unique region name with only permitted characters."""
    name = _UNFIT.sub(b"_", node.encode()).decode("ascii")
    while name in used:
        name += "_"
    used.add(name)
    return name


def _immutable(node: Node, tensor: Tensor, region: str) -> Node:
    attrs = {
        "dtype": attr.dtype(tensor.dtype),
        "shape": attr.shape(tensor.shape),
        REGION_NAME: attr.string(region),
    }
    return replace(node, op=IMMUTABLE, attrs=attrs)


LeftOut = Literal["training", "image library", "not compiled"]

_IMAGES: Final = frozenset(
    {
        *("DecodeAndCropJpeg", "DecodeGif", "DecodeImage", "DecodeJpeg", "DecodePng"),
        *("EncodeJpeg", "EncodeJpegVariableQuality", "EncodePng", "ExtractJpegShape"),
    }
)
_TRAINING: Final = re.compile(
    r"(Assign|Restore|Save|Merge)V?\w*"
    r"|\w*(Apply|Backprop|Barrier|CandidateSampler|Checkpoint|Dataset|Grad|Iterator|Queue|Reader"
    r"|Summary|Variable)\w*"
    r"|CTCLoss\w*|L2Loss|\w*CrossEntropy\w*|VarHandleOp|VarIsInitializedOp"
)
_BY_OP: Final = {
    "Assert": "`remove_control_dependencies`, then `strip_unused_nodes`, removes the checks",
    "PartitionedCall": "`inline_partitionedcall` inlines the function",
    "Print": "`remove_nodes: {op: [Print]}` removes it",
    "StatefulPartitionedCall": "`inline_partitionedcall: {all_calls: true}` inlines the function",
    **dict.fromkeys(
        ("If", "StatelessIf", "StatelessWhile", "While"),
        "`freeze: {control_flow: lower}` replaces it with `Switch` and `Merge`",
    ),
    **dict.fromkeys(
        ("FusedPadConv2D", "FusedResizeAndPadConv2D"), "drop the transform that fused it"
    ),
}
_BY_CAUSE: Final[dict[LeftOut, str]] = {
    "training": "freeze the model and name its outputs, so that `strip_unused_nodes` removes "
    "the training ops",
    "image library": "decode in the app and feed the pixels: name the decoder among the inputs",
    "not compiled": "",
}


def reason_left_out(op: str) -> LeftOut:
    """Return why the default mobile build does not compile an op."""
    if op in _IMAGES:
        return "image library"
    return "training" if _TRAINING.fullmatch(op) else "not compiled"


def removal(op: str) -> str:
    """Return how to remove an op from a graph; empty if unknown."""
    return _BY_OP.get(op) or _BY_CAUSE[reason_left_out(op)]


_NONCE_BYTES: Final = 12
_MOST_BYTES: Final = (1 << 31) - 1


def encrypt(content: bytes, key: Key) -> bytes:
    """Encrypt a model file.

    Raises:
        ArtifactError: the model is too large.
    """
    if len(content) > _MOST_BYTES:
        message = f"a model of {len(content):,} bytes is too large to be encrypted"
        raise ArtifactError(message, "make it smaller than 2 GiB, or leave 'encrypt' out")
    synthetic = hmac.digest(key.derived("synthetic"), content, "sha256")
    header = EncryptedHeader(len(content), key.id, synthetic).packed()
    return header + _cipher(key, synthetic).encrypt(_nonce(key, synthetic), content, header)


def decrypt(data: Buffer, key: Key, file: str) -> bytes:
    """Decrypt a model file.

    Args:
        data: the file's bytes.
        file: file name for errors.

    Raises:
        CorruptFileError: the key is wrong, or the file was changed.
    """
    header = read_header(data, file)
    if header.key_id != key.id:
        message = "is encrypted with another key"
        raise CorruptFileError(message, "give the key that the build had", file)
    cipher, nonce = _cipher(key, header.synthetic), _nonce(key, header.synthetic)
    packed = bytes(data[: header.size])
    from cryptography.exceptions import InvalidTag  # _cipher reports a missing package

    try:
        return cipher.decrypt(nonce, bytes(data[header.size :]), packed)
    except InvalidTag as error:
        message = "was changed after it was encrypted"
        raise CorruptFileError(
            message, "copy it again from the output directory of the build", file
        ) from error


def _cipher(key: Key, synthetic: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        message = "encryption needs the package cryptography, which is not installed"
        raise UnsupportedError(message, "pip install 'mobileprep[encrypt]'") from error
    return AESGCM(key.derived("model", synthetic))


def _nonce(key: Key, synthetic: bytes) -> bytes:
    return key.derived("nonce", synthetic)[:_NONCE_BYTES]
