"""Protobuf schemas of a registry: compiled by protoc, and described as the Avro schema alike.

Protobuf has no types for decimals, dates and identifiers: texts and whole numbers stand for them
(`LOOSE`). Messages that have a meaning of their own are read by it: ``google.protobuf.Timestamp``
and the wrappers, ``google.type.Date`` and ``Decimal``, ``confluent.type.Decimal``.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from errata.processors.envelopes.connect import LOOSE
from errata.schemas.errors import ErrataError
from errata.schemas.fields import MAX_PRECISION
from errata.schemas.layout import VARIABLE_DECIMAL

_LIMIT_S = 60.0
_MAIN = "errata_main.proto"
_FAULT = re.compile(r"\S+\.proto:(?!.* warning: )")
_META = "confluent/meta.proto"
_BUILT_IN = {  # files that registries resolve by themselves
    _META: """syntax = "proto3"; package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
}

TIMESTAMP, DATE = "google.protobuf.Timestamp", "google.type.Date"
TEXT_DECIMAL, BYTES_DECIMAL = "google.type.Decimal", "confluent.type.Decimal"
WRAPPERS = {
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


class ProtobufSchemaError(ErrataError):
    """A Protobuf schema can't be compiled."""


def compiled(text: str, imports: Mapping[str, str]) -> Any:
    """Return the descriptor of a Protobuf file.

    Args:
        text: The file, or its serialized descriptor in base64.
        imports: Texts of the files that it imports, also indirectly, by name. Those of Google and
            Confluent that registries resolve by themselves need not be there.

    Raises:
        ProtobufSchemaError: If it can't be compiled, or the compiler is not installed.
    """
    pool = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    descriptors = import_module("google.protobuf.descriptor_pb2").FileDescriptorSet
    try:
        for file in descriptors.FromString(_file_set(text, imports)).file:
            pool.AddSerializedFile(file.SerializeToString())
        return pool.FindFileByName(_MAIN)
    except (TypeError, KeyError) as error:
        raise ProtobufSchemaError(f"the Protobuf schema is refused: {error}") from None


def _file_set(text: str, imports: Mapping[str, str]) -> bytes:
    """Return the serialized descriptors of a file and of all that it imports."""
    try:
        includes = [Path(next(iter(import_module("grpc_tools").__path__))) / "_proto"]
        includes += [Path(next(iter(import_module("google.type").__path__))).parent.parent]
    except ImportError as error:
        raise ProtobufSchemaError(
            f"reading Protobuf needs '{error.name}'; run: pip install 'errata-streams[protobuf]'"
        ) from None
    with tempfile.TemporaryDirectory(prefix="errata-protobuf-") as folder:
        serialized = import_module("google.protobuf.descriptor_pb2").FileDescriptorSet()
        for name, content in {**_BUILT_IN, **imports, _MAIN: text}.items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ProtobufSchemaError(f"a Protobuf schema can't be imported as {name!r}")
            descriptor = _descriptor(content)
            if descriptor is not None:
                descriptor.name = name
                serialized.file.append(descriptor)
                continue
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8", errors="replace")
        found, paths = Path(folder) / "descriptors", [folder, *map(str, includes)]
        command = [sys.executable, "-m", "grpc_tools.protoc", *(f"-I{path}" for path in paths)]
        if serialized.file:
            given = Path(folder) / "serialized"
            given.write_bytes(serialized.SerializeToString())
            command.append(f"--descriptor_set_in={given}")
        command += ["--include_imports", f"--descriptor_set_out={found}", _MAIN]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            raise ProtobufSchemaError(
                f"the Protobuf schema is not compiled after {_LIMIT_S:g} s"
            ) from None
        if done.returncode:
            told = done.stderr.decode(errors="replace").replace(f"{folder}/", "").splitlines()
            faults = [line for line in told if _FAULT.match(line)] or told  # the rest are its logs
            shown = "; ".join(faults[:3]).replace(f"{_MAIN}:", "line ")
            raise ProtobufSchemaError(f"the Protobuf schema can't be compiled: {shown}")
        return found.read_bytes()


def _descriptor(text: str) -> Any:
    """Return a file that is its serialized descriptor in base64, as some clients register it."""
    try:
        content = base64.b64decode(text, validate=True)
        file = import_module("google.protobuf.descriptor_pb2").FileDescriptorProto
        return file.FromString(content) if content else None
    except (ValueError, import_module("google.protobuf.message").DecodeError):
        return None  # a text


def messages(file: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield all messages of a file, each with its index among its siblings, outermost first."""
    # the descriptors of a file are by name; their order is that of the file
    siblings = enumerate(file.message_types_by_name.values())
    pending: list[tuple[tuple[int, ...], Any]] = [((i,), each) for i, each in siblings]
    while pending:
        yield from (each for each in pending if not each[1].GetOptions().map_entry)
        pending = [
            ((*path, i), each)
            for path, message in pending
            for i, each in enumerate(message.nested_types)
        ]


def avro_schema(message: Any) -> dict[str, Any]:
    """Return the schema of an Avro record that has the columns of a Protobuf message.

    A field is nullable if Protobuf tells that it is absent: it is ``optional``, in a ``oneof``, or
    a message. What no column holds (repeated fields, maps, messages in messages) is an array.
    """
    return _record(message, message.full_name, depth=0)


def _record(message: Any, name: str, depth: int) -> dict[str, Any]:
    """Return a record by a name of its own: two fields of one message are two records."""
    fields = [
        {"name": field.name, "type": _type(field, f"{name}.{field.name}", depth)}
        for field in message.fields
    ]
    return {"type": "record", "name": name, "fields": fields}


_LEFT_OUT = {"type": "array", "items": "null"}


def _type(field: Any, name: str, depth: int) -> Any:
    if field.is_repeated:
        return _LEFT_OUT
    kind = _plain(field) if field.message_type is None else _message(field, name, depth)
    return ["null", kind] if field.has_presence and kind is not _LEFT_OUT else kind


def _message(field: Any, name: str, depth: int) -> Any:
    kind = field.message_type.full_name
    if kind == TIMESTAMP:
        return {"type": "long", "logicalType": "timestamp-micros"}
    if kind == DATE:
        return {"type": "int", "logicalType": "date"}
    if kind == TEXT_DECIMAL:
        return {"type": "string", "connect.name": LOOSE}
    if kind in WRAPPERS:
        return _plain(field.message_type.fields_by_name["value"])
    if kind == BYTES_DECIMAL:
        return _decimal(field, name)
    return _record(field.message_type, name, depth + 1) if depth == 0 else _LEFT_OUT


def _plain(field: Any) -> Any:
    if field.type in (field.TYPE_ENUM, field.TYPE_STRING):
        is_text = field.type == field.TYPE_STRING
        return {"type": "string", "connect.name": LOOSE} if is_text else "string"
    if field.type in (field.TYPE_INT32, field.TYPE_SINT32, field.TYPE_SFIXED32):
        return {"type": "int", "connect.name": LOOSE}
    if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64, field.CPPTYPE_UINT32):
        return {"type": "long", "connect.name": LOOSE}
    return {
        field.TYPE_DOUBLE: "double",
        field.TYPE_FLOAT: "float",
        field.TYPE_BOOL: "boolean",
        field.TYPE_BYTES: "bytes",
    }[field.type]


def _decimal(field: Any, name: str) -> dict[str, Any]:
    """Return the type of Confluent's decimal: of the scale of its options, else of any."""
    parameters = _parameters(field)
    try:
        scale = int(parameters["scale"])
        precision = int(parameters.get("precision", MAX_PRECISION))
    except (KeyError, ValueError):
        scale, precision = -1, 0
    if 0 <= scale <= precision <= MAX_PRECISION and precision:
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    parts = [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]
    return {"type": "record", "name": name, "connect.name": VARIABLE_DECIMAL, "fields": parts}


def _parameters(field: Any) -> Mapping[str, str]:
    """Return the parameters in Confluent's options of a field."""
    pool = field.file.pool
    try:
        extension = pool.FindExtensionByName("confluent.field_meta")
        options = pool.FindMessageTypeByName("google.protobuf.FieldOptions")
    except KeyError:
        return {}
    factory = import_module("google.protobuf.message_factory")
    read = factory.GetMessageClass(options).FromString(field.GetOptions().SerializeToString())
    return dict(read.Extensions[extension].params)
