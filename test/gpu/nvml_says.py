# SPDX-License-Identifier: Apache-2.0
"""What NVML says of the first GPU while something else is measured: for suite.py. Needs the package nvidia-ml-py."""
import statistics
import threading
import time

EACH = 0.05  # seconds between looks
EACH_PROCESS = 1.0  # seconds that a figure of a process is of
GPM = {"gpm_graphics": 1, "gpm_sm": 2}  # NVML_GPM_METRIC_GRAPHICS_UTIL, NVML_GPM_METRIC_SM_UTIL


class Watch:
    """Use as a context; at its end `figures` says what was seen in the last seconds, in % of the time."""

    def __enter__(self):
        import pynvml  # noqa: PLC0415 (not on every machine)
        self.nvml, self.samples, self.of_processes, self.done = pynvml, [], [], threading.Event()
        pynvml.nvmlInit()
        self.device = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.done.set()
        self.thread.join()
        for _, _, sample in self.samples:
            if sample is not None:
                self.nvml.nvmlGpmSampleFree(sample)
        self.nvml.nvmlShutdown()

    def look(self):
        while not self.done.wait(EACH):
            self.looked_at = time.monotonic()
            self.samples.append((self.looked_at, self.nvml.nvmlDeviceGetUtilizationRates(self.device).gpu, self.gpm_sample()))
            if not self.of_processes or self.looked_at >= self.of_processes[-1][0] + EACH_PROCESS:
                self.of_processes.append((self.looked_at, self.busy_processes()))

    def gpm_sample(self):
        try:
            return self.nvml.nvmlGpmSampleGet(self.device, self.nvml.nvmlGpmSampleAlloc())
        except (self.nvml.NVMLError, AttributeError):
            return None

    def figures(self, seconds):
        """Of so many seconds before the last 0.3, in which the load ends."""
        self.done.set()
        self.thread.join()
        end = self.samples[-1][0] - 0.3
        chosen = [sample for sample in self.samples if end - seconds <= sample[0] <= end]
        return {"utilisation": statistics.fmean(sample[1] for sample in chosen), **self.gpm(chosen[0][2], chosen[-1][2])}

    def processes(self, seconds):
        """Of each process in so many seconds before the last 0.3, which must be over one; the largest first."""
        self.done.set()
        self.thread.join()
        end = self.looked_at - 0.3
        chosen = [busy for at, busy in self.of_processes if end - seconds <= at <= end]
        means = [sum(busy.get(pid, 0) for busy in chosen) / len(chosen) for pid in set().union(*chosen)]
        return sorted(means, reverse=True)

    def busy_processes(self):
        """{pid: % of the last second}."""
        try:
            samples = self.nvml.nvmlDeviceGetProcessUtilization(self.device, int(1e6 * (time.time() - EACH_PROCESS)))
        except self.nvml.NVMLError:
            return {}
        return {sample.pid: sample.smUtil for sample in samples if 0 < sample.smUtil <= 100}

    def gpm(self, first, last):
        if first is None or last is None:
            return dict.fromkeys(GPM)
        asked = self.nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics, asked.sample1, asked.sample2 = 1, len(GPM), first, last
        for at, metric in enumerate(GPM.values()):
            asked.metrics[at].metricId = metric
        try:
            self.nvml.nvmlGpmMetricsGet(asked)
        except self.nvml.NVMLError:
            return dict.fromkeys(GPM)
        return {name: asked.metrics[at].value for at, name in enumerate(GPM)}
