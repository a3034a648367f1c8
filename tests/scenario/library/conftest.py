# SPDX-License-Identifier: Apache-2.0
"""libhapax as a program meets it: installed, found by pkg-config, and with nothing else of this tree in sight."""
import pathlib
import shutil
import subprocess

import pytest

from harness import HANG_S, binary, sanitized
from harness.gateway import environment

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDERS = (ROOT / "examples" / "c", pathlib.Path(__file__).parent)


class Installed:
    """`meson install` into a folder, and programs that are built against what is in it."""

    def __init__(self, folder):
        self.folder = folder
        subprocess.run(["meson", "install", "-C", binary().parents[1], "--no-rebuild", "--quiet", "--tags",
                        "devel,runtime", "--destdir", folder],
                       check=True, capture_output=True, timeout=4 * HANG_S)
        self.library = next(folder.rglob("libhapax.so"))
        self.env = environment({"PKG_CONFIG_PATH": str(self.library.parent / "pkgconfig"),
                                "PKG_CONFIG_SYSROOT_DIR": str(folder), "LD_LIBRARY_PATH": str(self.library.parent)})
        self.programs = {}

    def build(self, name, *flags, packages=("hapax",)):
        """Builds a program of examples/c/ or of this folder, once; returns its path."""
        program = self.folder / "-".join([name, *flags]).replace("/", "_")
        if program in self.programs:
            return program
        source = next(folder / f"{name}.c" for folder in FOLDERS if (folder / f"{name}.c").exists())
        found = subprocess.run(["pkg-config", "--cflags", "--libs", *packages], env=self.env, check=True, text=True,
                               capture_output=True).stdout.split()
        copy = self.folder / source.name  # away from the tree, so that nothing of it is found by chance
        shutil.copyfile(source, copy)
        data = binary().read_bytes()
        checks = ["-fsanitize=address,undefined"] if b"__asan_init" in data else []
        checks += ["-fsanitize=thread"] if b"__tsan_init" in data else []
        words = ["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-pthread",
                 *checks, copy, *flags, *found, "-o", program]
        made = subprocess.run(words, check=False, capture_output=True, text=True, cwd=self.folder)
        assert made.returncode == 0, made.stderr
        self.programs[program] = True
        return program

    def start(self, program, *words, env=None, **popen):
        return subprocess.Popen([str(word) for word in (program, *words)], env={**self.env, **(env or {})}, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen)

    def run(self, program, *words, env=None, given=None):
        """Runs it; returns (exit code, standard output, standard error)."""
        process = self.start(program, *words, env=env)
        out, errors = process.communicate(given, timeout=4 * HANG_S)
        return process.returncode, out, errors

    def well(self, program, *words, **more):
        code, out, errors = self.run(program, *words, **more)
        assert code == 0, (code, out, errors)
        return out

    def memcheck(self, program, *words):
        """The same under valgrind, which finds bad accesses and leaks."""
        return self.well("valgrind", "--quiet", "--error-exitcode=9", "--fair-sched=yes", "--leak-check=full",
                         "--errors-for-leak-kinds=definite", program, *words)


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def memcheck(installed):
    if sanitized():
        pytest.skip("a sanitizer looks for the same")
    if not shutil.which("valgrind"):
        raise FileNotFoundError("no valgrind: install the Debian package valgrind")
    return installed.memcheck
