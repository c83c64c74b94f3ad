"""The GPU meter: whatever the driver does, nobody waits for it and nothing breaks."""

import threading

import pytest

from forebay.nodes.gpu import GpuMeter, GpuReading, is_loopback, nvml_reading

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


def test_nvml_is_asked_for_the_busiest_gpu_and_the_memory_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Rates:
        def __init__(self, gpu: int) -> None:
            self.gpu = gpu

    class Memory:
        used, total = 3, 8

    class Nvml:
        shut_down = 0

        def nvmlInit(self) -> None:  # noqa: N802 - NVML's own names
            pass

        def nvmlShutdown(self) -> None:  # noqa: N802
            Nvml.shut_down += 1

        def nvmlDeviceGetCount(self) -> int:  # noqa: N802
            return 2

        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
            return index

        def nvmlDeviceGetUtilizationRates(self, handle: int) -> Rates:  # noqa: N802
            return Rates((10, 80)[handle])

        def nvmlDeviceGetMemoryInfo(self, handle: int) -> Memory:  # noqa: N802
            return Memory()

    monkeypatch.setattr("forebay.nodes.gpu.importlib.import_module", lambda _: Nvml())
    assert nvml_reading() == GpuReading(0.8, used_bytes=6, total_bytes=16)
    assert Nvml.shut_down == 1


@pytest.mark.parametrize("url", ["http://localhost", "http://127.9.9.9:1", "http://[::1]:8080"])
def test_addresses_of_this_machine_are_known(url: str) -> None:
    assert is_loopback(url)


@pytest.mark.parametrize("url", ["http://gpu1", "http://127.0.0.1.example", "nonsense", "http://["])
def test_addresses_elsewhere_and_nonsense_are_not_this_machine(url: str) -> None:
    assert not is_loopback(url)
