from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Records(_message.Message):
    __slots__ = ("sample_type", "sample", "mapping", "location", "function", "string_table", "period_type")
    SAMPLE_TYPE_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    MAPPING_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    STRING_TABLE_FIELD_NUMBER: _ClassVar[int]
    PERIOD_TYPE_FIELD_NUMBER: _ClassVar[int]
    sample_type: _containers.RepeatedScalarFieldContainer[bytes]
    sample: _containers.RepeatedScalarFieldContainer[bytes]
    mapping: _containers.RepeatedScalarFieldContainer[bytes]
    location: _containers.RepeatedScalarFieldContainer[bytes]
    function: _containers.RepeatedScalarFieldContainer[bytes]
    string_table: _containers.RepeatedScalarFieldContainer[bytes]
    period_type: bytes
    def __init__(self, sample_type: _Optional[_Iterable[bytes]] = ..., sample: _Optional[_Iterable[bytes]] = ..., mapping: _Optional[_Iterable[bytes]] = ..., location: _Optional[_Iterable[bytes]] = ..., function: _Optional[_Iterable[bytes]] = ..., string_table: _Optional[_Iterable[bytes]] = ..., period_type: _Optional[bytes] = ...) -> None: ...
