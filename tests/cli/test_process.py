"""What `forebay serve` sets up for its whole process."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

HEAPS_OF_THREADS = """
import ctypes, sys, threading
from forebay.cli.serve.server import prepare_process

if sys.argv[2] == "prepared":
    prepare_process()
begun = threading.Barrier(5)

def allocate():
    kept = [bytearray(2000) for _ in range(100)]
    begun.wait()  # all of them are alive at once

threads = [threading.Thread(target=allocate) for _ in range(4)]
for one in threads: one.start()
begun.wait()
for one in threads: one.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has a heap per thread")
def test_threads_share_one_heap_so_that_none_keeps_what_it_has_freed(tmp_path: Path) -> None:
    def heaps(how: str) -> int:
        file = tmp_path / how
        command = [sys.executable, "-c", HEAPS_OF_THREADS, str(file), how]
        subprocess.run(command, check=True, timeout=60)
        return file.read_text().count("<heap nr=")

    assert heaps("prepared") == 1
    assert heaps("as it comes") > 1
