"""The GPU meter: whatever the driver does, nobody waits for it and nothing breaks."""

import threading

import pytest

from forebay.nodes import gpu
from forebay.nodes.gpu import GpuMeter, GpuReading, is_loopback, nvml_reading
from forebay.nvml import GpuDevice

HERE = "http://127.0.0.1:11434"
PATIENCE_S = 30.0


async def test_load_and_memory_of_a_node_here_are_what_the_driver_says() -> None:
    assert await GpuMeter(lambda: GpuReading(0.25, 3, 8)).read(HERE, PATIENCE_S) == GpuReading(
        0.25, 3, 8
    )


async def test_the_load_of_a_node_elsewhere_is_unknown_and_nobody_is_asked() -> None:
    asked = []

    def measure() -> GpuReading:
        asked.append(1)
        return GpuReading(0.5)

    assert await GpuMeter(measure).read("http://10.0.0.7:11434", PATIENCE_S) is None
    assert asked == []


@pytest.mark.parametrize("load", [-0.5, 1.5])
async def test_a_load_beyond_the_scale_is_brought_back_to_it(load: float) -> None:
    reading = await GpuMeter(lambda: GpuReading(load)).read(HERE, PATIENCE_S)
    assert reading is not None
    assert reading.load in {0.0, 1.0}


async def test_a_driver_that_fails_leaves_the_load_unknown() -> None:
    def measure() -> GpuReading:
        raise OSError("no driver")

    assert await GpuMeter(measure).read(HERE, PATIENCE_S) is None


async def test_a_driver_that_hangs_is_not_waited_for_nor_asked_again() -> None:
    asked, released = [], threading.Event()

    def measure() -> GpuReading:
        asked.append(1)
        released.wait(PATIENCE_S)
        return GpuReading(0.5)

    meter = GpuMeter(measure)
    assert await meter.read(HERE, limit_s=0.0) is None
    assert await meter.read(HERE, limit_s=0.0) is None
    released.set()
    assert len(asked) == 1


async def test_without_a_gpu_the_load_is_unknown_and_nothing_is_raised() -> None:
    reading = await GpuMeter().read(HERE, PATIENCE_S)
    assert reading is None or 0.0 <= reading.load <= 1.0


@pytest.mark.parametrize(
    ("devices", "reading"),
    [
        ([GpuDevice(0, 3, 8, 0.1), GpuDevice(1, 3, 8, 0.8)], GpuReading(0.8, 6, 16)),
        ([GpuDevice(0, 3, 8, 0.1), GpuDevice(1, 3, 8)], None),
        ([], None),
        (None, None),
    ],
)
def test_the_load_is_that_of_the_busiest_gpu_and_the_memory_that_of_all(
    monkeypatch: pytest.MonkeyPatch, devices: list[GpuDevice] | None, reading: GpuReading | None
) -> None:
    monkeypatch.setattr(gpu, "read_devices", lambda: devices)
    assert nvml_reading() == reading


@pytest.mark.parametrize("url", ["http://localhost", "http://127.9.9.9:1", "http://[::1]:8080"])
def test_addresses_of_this_machine_are_known(url: str) -> None:
    assert is_loopback(url)


@pytest.mark.parametrize("url", ["http://gpu1", "http://127.0.0.1.example", "nonsense", "http://["])
def test_addresses_elsewhere_and_nonsense_are_not_this_machine(url: str) -> None:
    assert not is_loopback(url)
