# SPDX-License-Identifier: Apache-2.0
"""Places for files that belong to no single story."""
import atexit
import shutil
import tempfile


def passing_directory():
    """A directory with a short path, which goes when the tests are over."""
    path = tempfile.mkdtemp(prefix="hapax-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
