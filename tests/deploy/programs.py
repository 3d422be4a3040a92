"""Programs of Debian packages."""

import os
import shutil

import pytest

PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
}


def program(name: str) -> str:
    """Its path. Missing, it fails the test where CI=true, and skips it elsewhere."""
    found = shutil.which(name)
    if found is None:
        told = f"{name} is not installed: install the Debian package {PACKAGES[name]}"
        assert os.environ.get("CI") != "true", told
        pytest.skip(told)
    return found
