"""What goes wrong, by kind. Each carries one line, the same that the `temper` command says."""

from __future__ import annotations


class Error(Exception):
    """Any failure of Temper's."""


class InvalidArgumentError(Error, ValueError):
    """An argument that nothing could be done with."""


class InputError(InvalidArgumentError):
    """An array that the model does not take, or one that is missing."""


class NotFoundError(Error):
    """A file, a record, a device or a job that is not there."""


class PreconditionError(Error):
    """What was asked for contradicts what is there: a lock, a package, a database, a coverage that is too low."""


class PackageError(PreconditionError):
    """A directory that is no package, or is damaged, or is of another version."""


class WrongCpuError(PackageError):
    """The package is for other hardware."""


class BusyError(Error):
    """Another thread is inside this model; give each thread its own `Model.clone()`."""


class ResourcesError(Error):
    """Memory, threads or disk."""


class UnavailableError(Error):
    """A server that does not answer, or a file that can not be read or written."""


class AccessError(Error):
    """A server that refuses the caller."""


class UnsupportedError(Error):
    """A model or an option that Temper can not take."""


class CancelledError(Error):
    """A job that somebody ended."""


_OF_CODE: dict[str, type[Error]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "OUT_OF_RANGE": InvalidArgumentError,
    "NOT_FOUND": NotFoundError,
    "FAILED_PRECONDITION": PreconditionError,
    "ALREADY_EXISTS": PreconditionError,
    "RESOURCE_EXHAUSTED": ResourcesError,
    "UNAVAILABLE": UnavailableError,
    "DEADLINE_EXCEEDED": UnavailableError,
    "PERMISSION_DENIED": AccessError,
    "UNAUTHENTICATED": AccessError,
    "UNIMPLEMENTED": UnsupportedError,
    "CANCELLED": CancelledError,
}


def of_code(code: str, line: str) -> Error:
    """The exception for the code of a status of the command's."""
    return _OF_CODE.get(code, Error)(line)
