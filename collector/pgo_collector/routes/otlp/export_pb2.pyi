from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExportRequest(_message.Message):
    __slots__ = ("resource_profiles", "dictionary")
    RESOURCE_PROFILES_FIELD_NUMBER: _ClassVar[int]
    DICTIONARY_FIELD_NUMBER: _ClassVar[int]
    resource_profiles: _containers.RepeatedCompositeFieldContainer[ResourceProfiles]
    dictionary: Dictionary
    def __init__(self, resource_profiles: _Optional[_Iterable[_Union[ResourceProfiles, _Mapping]]] = ..., dictionary: _Optional[_Union[Dictionary, _Mapping]] = ...) -> None: ...

class ResourceProfiles(_message.Message):
    __slots__ = ("resource", "scope_profiles")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_PROFILES_FIELD_NUMBER: _ClassVar[int]
    resource: Resource
    scope_profiles: _containers.RepeatedCompositeFieldContainer[ScopeProfiles]
    def __init__(self, resource: _Optional[_Union[Resource, _Mapping]] = ..., scope_profiles: _Optional[_Iterable[_Union[ScopeProfiles, _Mapping]]] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("attributes",)
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    attributes: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, attributes: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class ScopeProfiles(_message.Message):
    __slots__ = ("scope", "profiles")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    scope: Scope
    profiles: _containers.RepeatedCompositeFieldContainer[Profile]
    def __init__(self, scope: _Optional[_Union[Scope, _Mapping]] = ..., profiles: _Optional[_Iterable[_Union[Profile, _Mapping]]] = ...) -> None: ...

class Scope(_message.Message):
    __slots__ = ("name", "version", "attributes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    attributes: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., attributes: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class Profile(_message.Message):
    __slots__ = ("sample_type", "samples", "time_unix_nano", "duration_nano", "period_type", "period", "original_payload_format", "original_payload", "attribute_indices")
    SAMPLE_TYPE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    DURATION_NANO_FIELD_NUMBER: _ClassVar[int]
    PERIOD_TYPE_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_PAYLOAD_FORMAT_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_INDICES_FIELD_NUMBER: _ClassVar[int]
    sample_type: ValueType
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    time_unix_nano: int
    duration_nano: int
    period_type: ValueType
    period: int
    original_payload_format: str
    original_payload: bytes
    attribute_indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sample_type: _Optional[_Union[ValueType, _Mapping]] = ..., samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ..., time_unix_nano: _Optional[int] = ..., duration_nano: _Optional[int] = ..., period_type: _Optional[_Union[ValueType, _Mapping]] = ..., period: _Optional[int] = ..., original_payload_format: _Optional[str] = ..., original_payload: _Optional[bytes] = ..., attribute_indices: _Optional[_Iterable[int]] = ...) -> None: ...

class ValueType(_message.Message):
    __slots__ = ("type_strindex", "unit_strindex")
    TYPE_STRINDEX_FIELD_NUMBER: _ClassVar[int]
    UNIT_STRINDEX_FIELD_NUMBER: _ClassVar[int]
    type_strindex: int
    unit_strindex: int
    def __init__(self, type_strindex: _Optional[int] = ..., unit_strindex: _Optional[int] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("stack_index", "attribute_indices", "link_index", "values", "timestamps_unix_nano")
    STACK_INDEX_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_INDICES_FIELD_NUMBER: _ClassVar[int]
    LINK_INDEX_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    stack_index: int
    attribute_indices: _containers.RepeatedScalarFieldContainer[int]
    link_index: int
    values: _containers.RepeatedScalarFieldContainer[int]
    timestamps_unix_nano: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, stack_index: _Optional[int] = ..., attribute_indices: _Optional[_Iterable[int]] = ..., link_index: _Optional[int] = ..., values: _Optional[_Iterable[int]] = ..., timestamps_unix_nano: _Optional[_Iterable[int]] = ...) -> None: ...

class Dictionary(_message.Message):
    __slots__ = ("mapping_table", "location_table", "function_table", "link_table", "string_table", "attribute_table", "stack_table")
    MAPPING_TABLE_FIELD_NUMBER: _ClassVar[int]
    LOCATION_TABLE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_TABLE_FIELD_NUMBER: _ClassVar[int]
    LINK_TABLE_FIELD_NUMBER: _ClassVar[int]
    STRING_TABLE_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_TABLE_FIELD_NUMBER: _ClassVar[int]
    STACK_TABLE_FIELD_NUMBER: _ClassVar[int]
    mapping_table: _containers.RepeatedCompositeFieldContainer[Mapping]
    location_table: _containers.RepeatedCompositeFieldContainer[Location]
    function_table: _containers.RepeatedCompositeFieldContainer[Function]
    link_table: _containers.RepeatedCompositeFieldContainer[Link]
    string_table: _containers.RepeatedScalarFieldContainer[str]
    attribute_table: _containers.RepeatedCompositeFieldContainer[KeyValueAndUnit]
    stack_table: _containers.RepeatedCompositeFieldContainer[Stack]
    def __init__(self, mapping_table: _Optional[_Iterable[_Union[Mapping, _Mapping]]] = ..., location_table: _Optional[_Iterable[_Union[Location, _Mapping]]] = ..., function_table: _Optional[_Iterable[_Union[Function, _Mapping]]] = ..., link_table: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., string_table: _Optional[_Iterable[str]] = ..., attribute_table: _Optional[_Iterable[_Union[KeyValueAndUnit, _Mapping]]] = ..., stack_table: _Optional[_Iterable[_Union[Stack, _Mapping]]] = ...) -> None: ...

class Mapping(_message.Message):
    __slots__ = ("memory_start", "memory_limit", "file_offset", "filename_strindex", "attribute_indices")
    MEMORY_START_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    FILE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILENAME_STRINDEX_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_INDICES_FIELD_NUMBER: _ClassVar[int]
    memory_start: int
    memory_limit: int
    file_offset: int
    filename_strindex: int
    attribute_indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, memory_start: _Optional[int] = ..., memory_limit: _Optional[int] = ..., file_offset: _Optional[int] = ..., filename_strindex: _Optional[int] = ..., attribute_indices: _Optional[_Iterable[int]] = ...) -> None: ...

class Location(_message.Message):
    __slots__ = ("mapping_index", "address", "lines", "attribute_indices")
    MAPPING_INDEX_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_INDICES_FIELD_NUMBER: _ClassVar[int]
    mapping_index: int
    address: int
    lines: _containers.RepeatedCompositeFieldContainer[Line]
    attribute_indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, mapping_index: _Optional[int] = ..., address: _Optional[int] = ..., lines: _Optional[_Iterable[_Union[Line, _Mapping]]] = ..., attribute_indices: _Optional[_Iterable[int]] = ...) -> None: ...

class Line(_message.Message):
    __slots__ = ("function_index", "line", "column")
    FUNCTION_INDEX_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    function_index: int
    line: int
    column: int
    def __init__(self, function_index: _Optional[int] = ..., line: _Optional[int] = ..., column: _Optional[int] = ...) -> None: ...

class Function(_message.Message):
    __slots__ = ("name_strindex", "system_name_strindex", "filename_strindex", "start_line")
    NAME_STRINDEX_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_NAME_STRINDEX_FIELD_NUMBER: _ClassVar[int]
    FILENAME_STRINDEX_FIELD_NUMBER: _ClassVar[int]
    START_LINE_FIELD_NUMBER: _ClassVar[int]
    name_strindex: int
    system_name_strindex: int
    filename_strindex: int
    start_line: int
    def __init__(self, name_strindex: _Optional[int] = ..., system_name_strindex: _Optional[int] = ..., filename_strindex: _Optional[int] = ..., start_line: _Optional[int] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("trace_id", "span_id")
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    SPAN_ID_FIELD_NUMBER: _ClassVar[int]
    trace_id: bytes
    span_id: bytes
    def __init__(self, trace_id: _Optional[bytes] = ..., span_id: _Optional[bytes] = ...) -> None: ...

class Stack(_message.Message):
    __slots__ = ("location_indices",)
    LOCATION_INDICES_FIELD_NUMBER: _ClassVar[int]
    location_indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, location_indices: _Optional[_Iterable[int]] = ...) -> None: ...

class KeyValue(_message.Message):
    __slots__ = ("key", "value", "key_strindex")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    KEY_STRINDEX_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: AnyValue
    key_strindex: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AnyValue, _Mapping]] = ..., key_strindex: _Optional[int] = ...) -> None: ...

class KeyValueAndUnit(_message.Message):
    __slots__ = ("key_strindex", "value", "unit_strindex")
    KEY_STRINDEX_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    UNIT_STRINDEX_FIELD_NUMBER: _ClassVar[int]
    key_strindex: int
    value: AnyValue
    unit_strindex: int
    def __init__(self, key_strindex: _Optional[int] = ..., value: _Optional[_Union[AnyValue, _Mapping]] = ..., unit_strindex: _Optional[int] = ...) -> None: ...

class AnyValue(_message.Message):
    __slots__ = ("string_value", "bool_value", "int_value", "double_value", "array_value", "string_value_strindex")
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    ARRAY_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_STRINDEX_FIELD_NUMBER: _ClassVar[int]
    string_value: str
    bool_value: bool
    int_value: int
    double_value: float
    array_value: ArrayValue
    string_value_strindex: int
    def __init__(self, string_value: _Optional[str] = ..., bool_value: _Optional[bool] = ..., int_value: _Optional[int] = ..., double_value: _Optional[float] = ..., array_value: _Optional[_Union[ArrayValue, _Mapping]] = ..., string_value_strindex: _Optional[int] = ...) -> None: ...

class ArrayValue(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[AnyValue]
    def __init__(self, values: _Optional[_Iterable[_Union[AnyValue, _Mapping]]] = ...) -> None: ...

class ExportResponse(_message.Message):
    __slots__ = ("partial_success",)
    PARTIAL_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    partial_success: PartialSuccess
    def __init__(self, partial_success: _Optional[_Union[PartialSuccess, _Mapping]] = ...) -> None: ...

class PartialSuccess(_message.Message):
    __slots__ = ("rejected_profiles", "error_message")
    REJECTED_PROFILES_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    rejected_profiles: int
    error_message: str
    def __init__(self, rejected_profiles: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
