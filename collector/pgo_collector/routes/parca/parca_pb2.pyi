from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DebuginfoType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEBUGINFO_TYPE_DEBUGINFO_UNSPECIFIED: _ClassVar[DebuginfoType]
    DEBUGINFO_TYPE_EXECUTABLE: _ClassVar[DebuginfoType]
    DEBUGINFO_TYPE_SOURCES: _ClassVar[DebuginfoType]
    DEBUGINFO_TYPE_SOURCE_MAP: _ClassVar[DebuginfoType]

class BuildIDType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUILD_ID_TYPE_UNKNOWN_UNSPECIFIED: _ClassVar[BuildIDType]
    BUILD_ID_TYPE_GNU: _ClassVar[BuildIDType]
    BUILD_ID_TYPE_HASH: _ClassVar[BuildIDType]
    BUILD_ID_TYPE_GO: _ClassVar[BuildIDType]
    BUILD_ID_TYPE_SOURCE_MAP_DEBUG_ID: _ClassVar[BuildIDType]
DEBUGINFO_TYPE_DEBUGINFO_UNSPECIFIED: DebuginfoType
DEBUGINFO_TYPE_EXECUTABLE: DebuginfoType
DEBUGINFO_TYPE_SOURCES: DebuginfoType
DEBUGINFO_TYPE_SOURCE_MAP: DebuginfoType
BUILD_ID_TYPE_UNKNOWN_UNSPECIFIED: BuildIDType
BUILD_ID_TYPE_GNU: BuildIDType
BUILD_ID_TYPE_HASH: BuildIDType
BUILD_ID_TYPE_GO: BuildIDType
BUILD_ID_TYPE_SOURCE_MAP_DEBUG_ID: BuildIDType

class WriteRawRequest(_message.Message):
    __slots__ = ("series",)
    SERIES_FIELD_NUMBER: _ClassVar[int]
    series: _containers.RepeatedCompositeFieldContainer[RawProfileSeries]
    def __init__(self, series: _Optional[_Iterable[_Union[RawProfileSeries, _Mapping]]] = ...) -> None: ...

class RawProfileSeries(_message.Message):
    __slots__ = ("labels", "samples")
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    labels: LabelSet
    samples: _containers.RepeatedCompositeFieldContainer[RawSample]
    def __init__(self, labels: _Optional[_Union[LabelSet, _Mapping]] = ..., samples: _Optional[_Iterable[_Union[RawSample, _Mapping]]] = ...) -> None: ...

class LabelSet(_message.Message):
    __slots__ = ("labels",)
    LABELS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    def __init__(self, labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ...) -> None: ...

class Label(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class RawSample(_message.Message):
    __slots__ = ("raw_profile",)
    RAW_PROFILE_FIELD_NUMBER: _ClassVar[int]
    raw_profile: bytes
    def __init__(self, raw_profile: _Optional[bytes] = ...) -> None: ...

class ShouldInitiateUploadRequest(_message.Message):
    __slots__ = ("build_id", "force", "type", "build_id_type")
    BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BUILD_ID_TYPE_FIELD_NUMBER: _ClassVar[int]
    build_id: str
    force: bool
    type: DebuginfoType
    build_id_type: BuildIDType
    def __init__(self, build_id: _Optional[str] = ..., force: _Optional[bool] = ..., type: _Optional[_Union[DebuginfoType, str]] = ..., build_id_type: _Optional[_Union[BuildIDType, str]] = ...) -> None: ...

class ShouldInitiateUploadResponse(_message.Message):
    __slots__ = ("should_initiate_upload", "reason")
    SHOULD_INITIATE_UPLOAD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    should_initiate_upload: bool
    reason: str
    def __init__(self, should_initiate_upload: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class InitiateUploadRequest(_message.Message):
    __slots__ = ("build_id", "size", "force", "type", "build_id_type")
    BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BUILD_ID_TYPE_FIELD_NUMBER: _ClassVar[int]
    build_id: str
    size: int
    force: bool
    type: DebuginfoType
    build_id_type: BuildIDType
    def __init__(self, build_id: _Optional[str] = ..., size: _Optional[int] = ..., force: _Optional[bool] = ..., type: _Optional[_Union[DebuginfoType, str]] = ..., build_id_type: _Optional[_Union[BuildIDType, str]] = ...) -> None: ...

class InitiateUploadResponse(_message.Message):
    __slots__ = ("upload_instructions",)
    UPLOAD_INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    upload_instructions: UploadInstructions
    def __init__(self, upload_instructions: _Optional[_Union[UploadInstructions, _Mapping]] = ...) -> None: ...

class UploadInstructions(_message.Message):
    __slots__ = ("build_id", "upload_id", "upload_strategy", "type")
    class UploadStrategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UPLOAD_STRATEGY_UNSPECIFIED: _ClassVar[UploadInstructions.UploadStrategy]
        UPLOAD_STRATEGY_GRPC: _ClassVar[UploadInstructions.UploadStrategy]
        UPLOAD_STRATEGY_SIGNED_URL: _ClassVar[UploadInstructions.UploadStrategy]
    UPLOAD_STRATEGY_UNSPECIFIED: UploadInstructions.UploadStrategy
    UPLOAD_STRATEGY_GRPC: UploadInstructions.UploadStrategy
    UPLOAD_STRATEGY_SIGNED_URL: UploadInstructions.UploadStrategy
    BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    build_id: str
    upload_id: str
    upload_strategy: UploadInstructions.UploadStrategy
    type: DebuginfoType
    def __init__(self, build_id: _Optional[str] = ..., upload_id: _Optional[str] = ..., upload_strategy: _Optional[_Union[UploadInstructions.UploadStrategy, str]] = ..., type: _Optional[_Union[DebuginfoType, str]] = ...) -> None: ...

class UploadRequest(_message.Message):
    __slots__ = ("info", "chunk_data")
    INFO_FIELD_NUMBER: _ClassVar[int]
    CHUNK_DATA_FIELD_NUMBER: _ClassVar[int]
    info: UploadInfo
    chunk_data: bytes
    def __init__(self, info: _Optional[_Union[UploadInfo, _Mapping]] = ..., chunk_data: _Optional[bytes] = ...) -> None: ...

class UploadInfo(_message.Message):
    __slots__ = ("build_id", "upload_id", "type")
    BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    build_id: str
    upload_id: str
    type: DebuginfoType
    def __init__(self, build_id: _Optional[str] = ..., upload_id: _Optional[str] = ..., type: _Optional[_Union[DebuginfoType, str]] = ...) -> None: ...

class UploadResponse(_message.Message):
    __slots__ = ("build_id", "size")
    BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    build_id: str
    size: int
    def __init__(self, build_id: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class MarkUploadFinishedRequest(_message.Message):
    __slots__ = ("build_id", "upload_id")
    BUILD_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    build_id: str
    upload_id: str
    def __init__(self, build_id: _Optional[str] = ..., upload_id: _Optional[str] = ...) -> None: ...

class MarkUploadFinishedResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
