#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libhapax never ends its host's process, starts a thread or takes a signal: checks the symbols of its objects.

    libhapax_symbols.py libhapax.a

Every symbol of ours that an object needs must be defined in the library, so that no other object is linked with it.
readelf reads what was compiled. Of objects for link-time optimisation nm shows another table, which leaves out `abort`
and all other functions that the compiler knows."""
import re
import subprocess
import sys

FORBIDDEN = re.compile(
    r"_?_?exit|_Exit|quick_exit|abort|__assert_fail|atexit|fork|vfork|execv\w*|pthread_create|thrd_create|"
    r"posix_spawnp?|system|popen|raise|kill|signal|sigaction|alarm|setitimer|sigprocmask|pthread_sigmask|stderr|stdout|"
    r"(__)?v?printf(_chk)?|puts|putchar|perror|hx_process_\w+|hx_log_to_stderr|"
    r"uv_\w+|curl_\w+|PQ\w+")


def symbols(archive):
    """Yields (object, whether it defines it, name) for every symbol that other objects can see."""
    member = "?"
    listing = subprocess.run(["readelf", "-sW", archive], check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        words = line.split()
        if line.startswith("File: "):
            member = line[6:]
        elif len(words) == 8 and words[4] in ("GLOBAL", "WEAK"):
            yield member, words[6] != "UND", words[7]


def main(archive):
    found = list(symbols(archive))
    defined = {name for _, is_defined, name in found if is_defined}
    needed = {(member, name) for member, _, name in found if name not in defined}
    if "hx_sqlite_begin" not in defined:
        sys.exit(f"{archive} has no hx_sqlite_begin: the list of its objects is wrong")
    wrong = [f"{member} needs {name}" for member, name in sorted(needed) if FORBIDDEN.fullmatch(name)]
    wrong += [f"{member} needs {name}, which libhapax doesn't have" for member, name in sorted(needed)
              if name.startswith("hx_")]
    print(f"{len(found)} symbols, {len({name for _, name in needed})} from other libraries")
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1])
