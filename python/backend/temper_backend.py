"""scikit-build-core, asked only where the Debian packages that the build needs are there: otherwise one line says how to
install them, in the place of CMake's pages. A hook of PEP 517 is a function here."""

import subprocess
from pathlib import Path

from scikit_build_core import build as _backend
from scikit_build_core.build import *  # noqa: F403 (the hooks that need no compiler)

_SETUP = Path(__file__).resolve().parents[2] / "deploy" / "setup.sh"


def _check_system():
    missing = subprocess.run([str(_SETUP), "--check", "build"], stdout=subprocess.PIPE, text=True)
    if missing.returncode != 0:
        raise SystemExit(missing.stdout.strip())


def get_requires_for_build_wheel(config_settings=None):
    _check_system()
    return _backend.get_requires_for_build_wheel(config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _check_system()
    return _backend.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _check_system()
    return _backend.build_editable(wheel_directory, config_settings, metadata_directory)
