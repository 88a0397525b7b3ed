"""Load the network that a command works on, from ``module:name`` or a file."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from errata.processors.declare.faults import NetworkError
from errata.processors.declare.network import Network, Stream
from errata.processors.declare.options import nearest, options_of
from errata.schemas.errors import ErrataError

_UNEXPECTED = re.compile(
    r"^(Stream|Network)\.([a-z]\w*)\(\) got an unexpected keyword argument '(\w+)'"
)


class LoadError(ErrataError):
    """A network can't be loaded from the reference that the user gave."""

    def __init__(self, reference: str, fault: str) -> None:
        self.reference = reference
        super().__init__(f"network {reference!r}: {fault}")


def load(reference: str) -> Network:
    """Return a network.

    Args:
        reference: ``module:name``, ``file.py:name``, or ``file.py`` if the file has only one
            network.

    Raises:
        LoadError: If the module or file does not exist or fails, or has no such network.
        NetworkError: If a declaration in it is refused.
    """
    target, name = _parts(reference)
    file, _ = file_of(reference)
    if file is not None:
        module = _run(reference, file)
    elif name:
        module = _import(reference, target)
    else:
        raise LoadError(reference, "no such file; give a file, or module:name")
    return _find(reference, target, module, name)


def file_of(reference: str) -> tuple[Path | None, str]:
    """Return a network's file (None for a module) and its name in it ("" if not given).

    Example:
        >>> file_of("tape.py:net"), file_of("errata.demo.tape:net")
        ((PosixPath('tape.py'), 'net'), (None, 'net'))
    """
    target, name = _parts(reference)
    return Path(target) if Path(target).is_file() or target.endswith(".py") else None, name


def _parts(reference: str) -> tuple[str, str]:
    target, colon, name = reference.rpartition(":")
    return (reference, "") if not colon or Path(reference).is_file() else (target, name)


def _run(reference: str, path: Path) -> ModuleType:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise LoadError(reference, f"can't read {str(path)!r}: {error.strerror}") from error
    module = ModuleType("__errata_network__")
    module.__file__ = str(path)
    _add_to_path(path.resolve().parent)
    sys.modules[module.__name__] = module  # dataclasses and pickle look here
    try:
        exec(compile(source, str(path), "exec"), vars(module))
    except (NetworkError, KeyboardInterrupt):
        raise
    except ErrataError as error:
        raise LoadError(reference, f"{_place_of(error, str(path))}{error}") from error
    except BaseException as error:  # a user's file may raise anything, including SystemExit
        raise LoadError(reference, _error_line(error, str(path))) from error
    return module


def _import(reference: str, name: str) -> ModuleType:
    _add_to_path(Path.cwd())
    try:
        return importlib.import_module(name)
    except (ErrataError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            fault = f"no module {error.name!r}, neither installed nor in this folder"
            raise LoadError(reference, fault) from error
        raise LoadError(reference, _error_line(error)) from error
    except BaseException as error:
        raise LoadError(reference, _error_line(error)) from error


def _add_to_path(folder: Path) -> None:
    """Let the network's file import modules beside it; last in the path, to hide no others."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _place_of(error: BaseException, file: str) -> str:
    """Return the file and line of it in which an error was raised, as ``file, line 3: ``."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f"{file}, line {frames[-1].lineno}: " if frames else ""


def _error_line(error: BaseException, file: str | None = None) -> str:
    """Return one line on an error in a user's file: the file, the line, and the error."""
    if isinstance(error, SyntaxError):
        return f"syntax error in {error.filename}, line {error.lineno}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)]
    last_frames = [frame for frame in frames if frame.filename == file] or frames[-1:]
    text = " ".join(str(error).split())
    last = last_frames[-1]
    told = f"{last.filename}, line {last.lineno}: {type(error).__name__}: {text}"
    if isinstance(error, TypeError):
        return told + _option_meant(text)
    return told + (_method_meant(error) if isinstance(error, AttributeError) else "")


def _method_meant(error: AttributeError) -> str:
    """Return which method of a network or an arc an unknown one is likely to mean."""
    owner = type(error.obj)
    if owner not in (Network, Stream) or not error.name:
        return ""
    other = Network if owner is Stream else Stream
    if callable(getattr(other, error.name, None)):
        of = f"the network: net.{error.name}" if owner is Stream else f"an arc: arc.{error.name}"
        return f"; it is a method of {of}(...)"
    methods = [name for name, each in vars(owner).items() if callable(each) and name[0] != "_"]
    meant = nearest(error.name, methods)
    return f"; write .{meant}(...)" if meant else f"; it has {', '.join(methods)}"


def _option_meant(text: str) -> str:
    """Return which option of a box an unexpected keyword is likely to mean; "" if not known."""
    found = _UNEXPECTED.search(text)
    if found is None:
        return ""
    owner, method, keyword = found.groups()
    options = options_of(getattr({"Stream": Stream, "Network": Network}[owner], method))
    meant = nearest(keyword, options)
    return f"; write {meant}=" if meant else f"; it has {', '.join(options)}"


def _find(reference: str, target: str, module: ModuleType, name: str) -> Network:
    networks = {key: value for key, value in vars(module).items() if isinstance(value, Network)}
    if name:
        if name in networks:
            return networks[name]
        known = f"; it has {', '.join(networks)}" if networks else "; it has none"
        raise LoadError(reference, f"{target} has no network named {name!r}{known}")
    distinct = {id(network): network for network in networks.values()}
    if len(distinct) == 1:
        return distinct.popitem()[1]
    if not distinct:
        raise LoadError(reference, "the file has no network; write net = Network('...') in it")
    choices = " or ".join(f"{target}:{key}" for key in networks)
    raise LoadError(reference, f"the file has {len(distinct)} networks; say which: {choices}")
