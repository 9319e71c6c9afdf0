"""A cluster of Dask's: the same bits, whoever dies."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import lwa
from lwa.errors import ExecutorError
from lwa.executors import Dask, Serial
from tests.executors.logistic import ASKED, MODEL, deadly, rows

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:::distributed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.npy"
    np.save(path, rows())
    return path


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def here(path):
    return lwa.sample(MODEL, path, **ASKED)


def same(one, other):
    assert all(np.array_equal(one.posterior[name], other.posterior[name]) for name in one.posterior)


def test_the_same_bits(client, path, here):
    there = lwa.sample(MODEL, path, **ASKED, executor=Dask(client))
    same(here, there)
    assert here.certify(progress=False).as_dict() == there.certify(progress=False).as_dict()
    in_memory = lwa.sample(MODEL, rows(), **ASKED, executor=Dask(client))
    same(here, in_memory)


def test_exact_draws_are_the_same_bits(client, path):
    asked = ASKED | {"exact": True, "draws": 5}
    same(*(lwa.sample(MODEL, path, **asked, executor=executor) for executor in (Serial(), Dask(client))))


@pytest.mark.parametrize("during", ["sum_piece", "play_segment"])
def test_a_worker_that_is_killed_changes_nothing(client, path, here, tmp_path, during):
    flag = tmp_path / "struck"
    there = lwa.sample(deadly(during, flag, os.getpid()), path, **ASKED, executor=Dask(client))
    assert flag.exists()
    same(here, there)


class Cluster:
    """A scheduler and workers as processes that can be killed, without nannies to start them again."""

    def __init__(self, folder, workers=2):
        file = folder / "scheduler.json"
        self.scheduler = self._start("dask_scheduler", "--port", "0", "--scheduler-file", str(file))
        more = ("--scheduler-file", str(file), "--nthreads", "1", "--no-nanny")
        self.workers = [self._start("dask_worker", *more) for _ in range(workers)]
        while not file.exists():
            time.sleep(0.05)
        self.client = distributed.Client(scheduler_file=str(file))
        self.client.wait_for_workers(workers)

    def _start(self, what, *arguments):
        command = [sys.executable, "-m", f"distributed.cli.{what}", *arguments, "--no-dashboard"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def close(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
        self.client.close(timeout=1)


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("lost", ["workers", "scheduler"])
def test_a_cluster_that_is_lost_leaves_a_checkpoint_that_can_be_resumed(cluster, path, tmp_path, lost):
    run = tmp_path / "run"

    def strike():
        while not list(run.glob("state-*")) or time.time() - max(f.stat().st_mtime for f in run.glob("state-*")) > 5:
            time.sleep(0.1)
        time.sleep(2)
        for process in cluster.workers if lost == "workers" else [cluster.scheduler]:
            process.kill()

    threading.Thread(target=strike, daemon=True).start()
    asked = ASKED | {"draws": 10**7}
    with pytest.raises(ExecutorError, match="no worker for 2 s" if lost == "workers" else "scheduler") as failed:
        lwa.sample(MODEL, path, **asked, checkpoint=run, executor=Dask(cluster.client, patience=2.0))
    assert any("lwa.resume" in note for note in failed.value.__notes__)
    drawn = lwa.load(run).draws
    assert drawn == (failed.value.lwa_result.draws if hasattr(failed.value, "lwa_result") else 0)
    more = drawn + 100
    same(lwa.resume(run, MODEL, path, draws=more, progress=False), lwa.sample(MODEL, path, **ASKED | {"draws": more}))


def test_workers_that_die_over_one_task(client, path):
    from lwa.executors import Work
    from tests.executors.test_executors import always_fatal

    with pytest.raises(ExecutorError, match="died again and again over the same task"):
        list(Dask(client).map(Work(always_fatal), [0]))


def fitted(table, out, *more):
    command = [
        sys.executable,
        "-m",
        "lwa",
        "fit",
        "y ~ x + kind",
        str(table),
        "--family",
        "bernoulli",
        "--out",
        str(out),
    ]
    asked = ["--subset-size", "200", "--draws", "100", "--tune", "200", "--seed", "5", "--json", "--no-report"]
    return subprocess.run([*command, *asked, *more], capture_output=True, text=True, timeout=200, check=False)


def test_the_command_line(client, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, rng = tmp_path / "table", np.random.default_rng(3)
    table.mkdir()
    for part in range(3):
        x = rng.normal(size=50_000)
        columns = {"x": x, "y": rng.random(50_000) < 1 / (1 + np.exp(-x)), "kind": rng.choice(["a", "b", "c"], 50_000)}
        pq.write_table(pa.table(columns), table / f"part{part}.parquet")
    here = fitted(table, tmp_path / "here")
    client.cluster.scale(2)  # a nanny whose worker was killed as it came up, in a test before, may have given up
    client.wait_for_workers(2, timeout=60)
    there = fitted(table, tmp_path / "there", "--dask", client.scheduler.address)
    assert (here.returncode, there.returncode) == (0, 0), (here.stderr, there.stderr)
    same(lwa.load(tmp_path / "here"), lwa.load(tmp_path / "there"))
    nobody = fitted(table, tmp_path / "nobody", "--dask", "tcp://127.0.0.1:1")
    assert nobody.returncode == 2
    assert "No Dask scheduler answers at 'tcp://127.0.0.1:1'" in nobody.stderr
    assert "Traceback" not in nobody.stderr
