import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FileMetadata(_message.Message):
    __slots__ = ("gnu_build_id", "go_build_id", "otel_file_id", "name", "type")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPE_UNSPECIFIED: _ClassVar[FileMetadata.Type]
        TYPE_EXECUTABLE_FULL: _ClassVar[FileMetadata.Type]
        TYPE_EXECUTABLE_NO_TEXT: _ClassVar[FileMetadata.Type]
    TYPE_UNSPECIFIED: FileMetadata.Type
    TYPE_EXECUTABLE_FULL: FileMetadata.Type
    TYPE_EXECUTABLE_NO_TEXT: FileMetadata.Type
    GNU_BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    GO_BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    OTEL_FILE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    gnu_build_id: str
    go_build_id: str
    otel_file_id: str
    name: str
    type: FileMetadata.Type
    def __init__(self, gnu_build_id: _Optional[str] = ..., go_build_id: _Optional[str] = ..., otel_file_id: _Optional[str] = ..., name: _Optional[str] = ..., type: _Optional[_Union[FileMetadata.Type, str]] = ...) -> None: ...

class ShouldInitiateUploadRequest(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileMetadata
    def __init__(self, file: _Optional[_Union[FileMetadata, _Mapping]] = ...) -> None: ...

class ShouldInitiateUploadResponse(_message.Message):
    __slots__ = ("should_initiate_upload", "reason")
    SHOULD_INITIATE_UPLOAD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    should_initiate_upload: bool
    reason: str
    def __init__(self, should_initiate_upload: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class UploadFinishedRequest(_message.Message):
    __slots__ = ("gnu_build_id",)
    GNU_BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    gnu_build_id: str
    def __init__(self, gnu_build_id: _Optional[str] = ...) -> None: ...

class UploadFinishedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDebuginfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDebuginfoResponse(_message.Message):
    __slots__ = ("object",)
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    object: _containers.RepeatedCompositeFieldContainer[ObjectMetadata]
    def __init__(self, object: _Optional[_Iterable[_Union[ObjectMetadata, _Mapping]]] = ...) -> None: ...

class DeleteDebuginfoRequest(_message.Message):
    __slots__ = ("gnu_build_id",)
    GNU_BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    gnu_build_id: str
    def __init__(self, gnu_build_id: _Optional[str] = ...) -> None: ...

class DeleteDebuginfoResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ObjectMetadata(_message.Message):
    __slots__ = ("file", "state", "started_at", "finished_at", "size_bytes")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UPLOADING: _ClassVar[ObjectMetadata.State]
        STATE_UPLOADED: _ClassVar[ObjectMetadata.State]
    STATE_UPLOADING: ObjectMetadata.State
    STATE_UPLOADED: ObjectMetadata.State
    FILE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    file: FileMetadata
    state: ObjectMetadata.State
    started_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    size_bytes: int
    def __init__(self, file: _Optional[_Union[FileMetadata, _Mapping]] = ..., state: _Optional[_Union[ObjectMetadata.State, str]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., size_bytes: _Optional[int] = ...) -> None: ...
