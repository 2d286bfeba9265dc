from mobileprep.formats.protos import graph_pb2 as _graph_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
TFT_ANY: FullTypeId
TFT_ARRAY: FullTypeId
TFT_BFLOAT16: FullTypeId
TFT_BOOL: FullTypeId
TFT_CALLABLE: FullTypeId
TFT_COMPLEX128: FullTypeId
TFT_COMPLEX64: FullTypeId
TFT_DATASET: FullTypeId
TFT_DOUBLE: FullTypeId
TFT_ENCODED: FullTypeId
TFT_FLOAT: FullTypeId
TFT_FOR_EACH: FullTypeId
TFT_HALF: FullTypeId
TFT_INT16: FullTypeId
TFT_INT32: FullTypeId
TFT_INT64: FullTypeId
TFT_INT8: FullTypeId
TFT_ITERATOR: FullTypeId
TFT_LEGACY_VARIANT: FullTypeId
TFT_LITERAL: FullTypeId
TFT_MUTEX_LOCK: FullTypeId
TFT_NAMED: FullTypeId
TFT_OPTIONAL: FullTypeId
TFT_PRODUCT: FullTypeId
TFT_RAGGED: FullTypeId
TFT_SHAPE_TENSOR: FullTypeId
TFT_STRING: FullTypeId
TFT_TENSOR: FullTypeId
TFT_UINT16: FullTypeId
TFT_UINT32: FullTypeId
TFT_UINT64: FullTypeId
TFT_UINT8: FullTypeId
TFT_UNSET: FullTypeId
TFT_VAR: FullTypeId

class FullTypeDef(_message.Message):
    __slots__ = ["args", "i", "s", "type_id"]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    I_FIELD_NUMBER: _ClassVar[int]
    S_FIELD_NUMBER: _ClassVar[int]
    TYPE_ID_FIELD_NUMBER: _ClassVar[int]
    args: _containers.RepeatedCompositeFieldContainer[FullTypeDef]
    i: int
    s: str
    type_id: FullTypeId
    def __init__(self, type_id: _Optional[_Union[FullTypeId, str]] = ..., args: _Optional[_Iterable[_Union[FullTypeDef, _Mapping]]] = ..., s: _Optional[str] = ..., i: _Optional[int] = ...) -> None: ...

class FunctionDef(_message.Message):
    __slots__ = ["arg_attr", "attr", "control_ret", "node_def", "resource_arg_unique_id", "ret", "signature"]
    class ArgAttrEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: _graph_pb2.FunctionDef.ArgAttrs
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[_graph_pb2.FunctionDef.ArgAttrs, _Mapping]] = ...) -> None: ...
    class AttrEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _graph_pb2.AttrValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_graph_pb2.AttrValue, _Mapping]] = ...) -> None: ...
    class ControlRetEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ResourceArgUniqueIdEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class RetEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ARG_ATTR_FIELD_NUMBER: _ClassVar[int]
    ATTR_FIELD_NUMBER: _ClassVar[int]
    CONTROL_RET_FIELD_NUMBER: _ClassVar[int]
    NODE_DEF_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ARG_UNIQUE_ID_FIELD_NUMBER: _ClassVar[int]
    RET_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    arg_attr: _containers.MessageMap[int, _graph_pb2.FunctionDef.ArgAttrs]
    attr: _containers.MessageMap[str, _graph_pb2.AttrValue]
    control_ret: _containers.ScalarMap[str, str]
    node_def: _containers.RepeatedCompositeFieldContainer[NodeDef]
    resource_arg_unique_id: _containers.ScalarMap[int, int]
    ret: _containers.ScalarMap[str, str]
    signature: OpDef
    def __init__(self, signature: _Optional[_Union[OpDef, _Mapping]] = ..., node_def: _Optional[_Iterable[_Union[NodeDef, _Mapping]]] = ..., ret: _Optional[_Mapping[str, str]] = ..., attr: _Optional[_Mapping[str, _graph_pb2.AttrValue]] = ..., control_ret: _Optional[_Mapping[str, str]] = ..., arg_attr: _Optional[_Mapping[int, _graph_pb2.FunctionDef.ArgAttrs]] = ..., resource_arg_unique_id: _Optional[_Mapping[int, int]] = ...) -> None: ...

class FunctionDefLibrary(_message.Message):
    __slots__ = ["function", "gradient"]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    function: _containers.RepeatedCompositeFieldContainer[FunctionDef]
    gradient: _containers.RepeatedCompositeFieldContainer[_graph_pb2.GradientDef]
    def __init__(self, function: _Optional[_Iterable[_Union[FunctionDef, _Mapping]]] = ..., gradient: _Optional[_Iterable[_Union[_graph_pb2.GradientDef, _Mapping]]] = ...) -> None: ...

class GraphDef(_message.Message):
    __slots__ = ["library", "node", "version", "versions"]
    LIBRARY_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    library: FunctionDefLibrary
    node: _containers.RepeatedCompositeFieldContainer[NodeDef]
    version: int
    versions: _graph_pb2.VersionDef
    def __init__(self, node: _Optional[_Iterable[_Union[NodeDef, _Mapping]]] = ..., library: _Optional[_Union[FunctionDefLibrary, _Mapping]] = ..., version: _Optional[int] = ..., versions: _Optional[_Union[_graph_pb2.VersionDef, _Mapping]] = ...) -> None: ...

class NodeDef(_message.Message):
    __slots__ = ["attr", "device", "experimental_debug_info", "experimental_type", "input", "name", "op"]
    class AttrEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _graph_pb2.AttrValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_graph_pb2.AttrValue, _Mapping]] = ...) -> None: ...
    class ExperimentalDebugInfo(_message.Message):
        __slots__ = ["original_func_names", "original_node_names"]
        ORIGINAL_FUNC_NAMES_FIELD_NUMBER: _ClassVar[int]
        ORIGINAL_NODE_NAMES_FIELD_NUMBER: _ClassVar[int]
        original_func_names: _containers.RepeatedScalarFieldContainer[str]
        original_node_names: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, original_node_names: _Optional[_Iterable[str]] = ..., original_func_names: _Optional[_Iterable[str]] = ...) -> None: ...
    ATTR_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENTAL_DEBUG_INFO_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENTAL_TYPE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    attr: _containers.MessageMap[str, _graph_pb2.AttrValue]
    device: str
    experimental_debug_info: NodeDef.ExperimentalDebugInfo
    experimental_type: FullTypeDef
    input: _containers.RepeatedScalarFieldContainer[str]
    name: str
    op: str
    def __init__(self, name: _Optional[str] = ..., op: _Optional[str] = ..., input: _Optional[_Iterable[str]] = ..., device: _Optional[str] = ..., attr: _Optional[_Mapping[str, _graph_pb2.AttrValue]] = ..., experimental_debug_info: _Optional[_Union[NodeDef.ExperimentalDebugInfo, _Mapping]] = ..., experimental_type: _Optional[_Union[FullTypeDef, _Mapping]] = ...) -> None: ...

class OpDef(_message.Message):
    __slots__ = ["allows_uninitialized_input", "attr", "control_output", "deprecation", "description", "input_arg", "is_aggregate", "is_commutative", "is_distributed_communication", "is_stateful", "name", "output_arg", "summary"]
    class ArgDef(_message.Message):
        __slots__ = ["description", "handle_data", "is_ref", "name", "number_attr", "type", "type_attr", "type_list_attr"]
        class DtypeAndShape(_message.Message):
            __slots__ = ["dtype", "shape"]
            DTYPE_FIELD_NUMBER: _ClassVar[int]
            SHAPE_FIELD_NUMBER: _ClassVar[int]
            dtype: _graph_pb2.DataType
            shape: _graph_pb2.TensorShapeProto
            def __init__(self, dtype: _Optional[_Union[_graph_pb2.DataType, str]] = ..., shape: _Optional[_Union[_graph_pb2.TensorShapeProto, _Mapping]] = ...) -> None: ...
        DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
        HANDLE_DATA_FIELD_NUMBER: _ClassVar[int]
        IS_REF_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        NUMBER_ATTR_FIELD_NUMBER: _ClassVar[int]
        TYPE_ATTR_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        TYPE_LIST_ATTR_FIELD_NUMBER: _ClassVar[int]
        description: str
        handle_data: _containers.RepeatedCompositeFieldContainer[OpDef.ArgDef.DtypeAndShape]
        is_ref: bool
        name: str
        number_attr: str
        type: _graph_pb2.DataType
        type_attr: str
        type_list_attr: str
        def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., type: _Optional[_Union[_graph_pb2.DataType, str]] = ..., type_attr: _Optional[str] = ..., number_attr: _Optional[str] = ..., type_list_attr: _Optional[str] = ..., handle_data: _Optional[_Iterable[_Union[OpDef.ArgDef.DtypeAndShape, _Mapping]]] = ..., is_ref: bool = ...) -> None: ...
    ALLOWS_UNINITIALIZED_INPUT_FIELD_NUMBER: _ClassVar[int]
    ATTR_FIELD_NUMBER: _ClassVar[int]
    CONTROL_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    DEPRECATION_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_ARG_FIELD_NUMBER: _ClassVar[int]
    IS_AGGREGATE_FIELD_NUMBER: _ClassVar[int]
    IS_COMMUTATIVE_FIELD_NUMBER: _ClassVar[int]
    IS_DISTRIBUTED_COMMUNICATION_FIELD_NUMBER: _ClassVar[int]
    IS_STATEFUL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ARG_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    allows_uninitialized_input: bool
    attr: _containers.RepeatedCompositeFieldContainer[_graph_pb2.OpDef.AttrDef]
    control_output: _containers.RepeatedScalarFieldContainer[str]
    deprecation: _graph_pb2.OpDeprecation
    description: str
    input_arg: _containers.RepeatedCompositeFieldContainer[OpDef.ArgDef]
    is_aggregate: bool
    is_commutative: bool
    is_distributed_communication: bool
    is_stateful: bool
    name: str
    output_arg: _containers.RepeatedCompositeFieldContainer[OpDef.ArgDef]
    summary: str
    def __init__(self, name: _Optional[str] = ..., input_arg: _Optional[_Iterable[_Union[OpDef.ArgDef, _Mapping]]] = ..., output_arg: _Optional[_Iterable[_Union[OpDef.ArgDef, _Mapping]]] = ..., attr: _Optional[_Iterable[_Union[_graph_pb2.OpDef.AttrDef, _Mapping]]] = ..., summary: _Optional[str] = ..., description: _Optional[str] = ..., deprecation: _Optional[_Union[_graph_pb2.OpDeprecation, _Mapping]] = ..., is_aggregate: bool = ..., is_stateful: bool = ..., is_commutative: bool = ..., allows_uninitialized_input: bool = ..., control_output: _Optional[_Iterable[str]] = ..., is_distributed_communication: bool = ...) -> None: ...

class FullTypeId(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
