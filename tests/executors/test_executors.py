"""One protocol: whoever computes, and in whatever order, results are the same bits and errors are the same errors."""

import os
import signal
import threading
from itertools import pairwise

import jax
import numpy as np
import pytest
from scipy.signal import lfilter

import lwa
from lwa.errors import DataError, ExecutorError, InputError
from lwa.executors import Executor, Processes, Serial, Work
from lwa.rows import as_rows, survey
from lwa.rows.passes import LEAST_PIECE_ROWS, MOST_PIECES, compute_pieces, cut_pieces, map_pieces, spread_passes
from lwa.targets.reference import compute_log_posterior, sum_all_rows
from tests.executors.logistic import ASKED, MODEL, rows


class Backwards:
    """Computes the last piece first, each in parcels as another process would get them."""

    def __init__(self, workers):
        self.workers, self.tasks = workers, []

    def map(self, work, pieces, near=None):
        self.tasks.append(len(pieces))
        assert near is None or len(near) == len(pieces)
        with jax.enable_x64(True):
            found = [work(piece) for piece in reversed(pieces)]
        yield from reversed(found)


class Plain:
    """A user's rows: three methods, blocks as they come."""

    def __init__(self, array):
        self.array = array

    def __len__(self):
        return len(self.array)

    def take(self, indices):
        return self.array[indices]

    def blocks(self, size):
        yield from np.array_split(self.array, 7)


@pytest.mark.parametrize("N", [1, LEAST_PIECE_ROWS, LEAST_PIECE_ROWS + 1, 10**6, 10**8, 10**10])
def test_pieces_are_all_rows_once_and_depend_on_their_number_alone(N):
    class Counted:
        def __len__(self):
            return N

    pieces = cut_pieces(Counted())
    assert pieces[0][0] == 0
    assert pieces[-1][1] == N
    assert all(one[1] == other[0] and one[1] % LEAST_PIECE_ROWS == 0 for one, other in pairwise(pieces))
    assert len(pieces) <= MOST_PIECES


def ways(array):
    return [
        as_rows(array),
        Plain(array),
        spread_passes(as_rows(array), Serial(1)),
        spread_passes(as_rows(array), Serial(3)),
        spread_passes(as_rows(array), Backwards(1)),
        spread_passes(as_rows(array), Backwards(50)),
        spread_passes(Plain(array), Backwards(2)),
    ]


def test_every_way_gives_the_same_bits():
    array, theta = rows(), np.array([0.4, -0.9, 0.1])
    with jax.enable_x64(True):
        for first, *others in (
            [sum_all_rows(MODEL, way, theta) for way in ways(array)],
            [compute_log_posterior(MODEL, way, np.stack([theta, -theta])) for way in ways(array)],
            [(survey(way).fingerprint,) for way in ways(array)],
        ):
            for other in others:
                assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_tasks_hold_several_pieces_where_workers_are_few():
    few, many = Backwards(1), Backwards(100)
    for executor in (few, many):
        list(
            map_pieces(
                spread_passes(as_rows(rows(20 * LEAST_PIECE_ROWS)[:, 0]), executor), lambda start, blocks: start, 4096
            )
        )
    assert few.tasks == [2]
    assert many.tasks == [20]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_fit_and_its_certificate_are_the_same_bits(ordered):
    if ordered:
        y = lfilter([1.0], [1.0, -0.5], np.random.default_rng(2).normal(size=300_000))
        model, data = lwa.arma(1, 0), y.astype(np.float32)
    else:
        model, data = MODEL, rows()
    here = lwa.sample(model, data, **ASKED)
    executor = Backwards(2)
    there = lwa.sample(model, data, **ASKED, executor=executor)
    assert sum(executor.tasks) > 10  # passes, and segments of both cohorts
    for name, values in here.posterior.items():
        np.testing.assert_array_equal(values, there.posterior[name])
    one, other = (fit.certify(progress=False, points=50).as_dict() for fit in (here, there))
    assert one == other


def test_an_error_is_the_users_own():
    array = rows()
    array[150_000, 1] = np.nan
    for executor in (None, Serial(2), Backwards(2)):
        with pytest.raises(DataError, match="1, the first in row 150000"):
            lwa.sample(MODEL, array, **ASKED, executor=executor)


@pytest.mark.parametrize("executor", ["dask", 2, Serial, object()])
def test_what_is_no_executor(executor):
    with pytest.raises(InputError, match=r"executor is of type .*lwa\.executors\.Dask\(client\)"):
        lwa.sample(MODEL, rows(1000), **ASKED, executor=executor)


def test_the_three_are_executors():
    assert isinstance(Serial(), Executor)
    assert isinstance(Processes(2), Executor)
    assert hasattr(lwa.executors.Dask, "map")
    with pytest.raises(InputError, match=r"client is of type str.*distributed\.Client"):
        lwa.executors.Dask("tcp://scheduler:8786")


# Processes


def fatal(flag, piece):
    """Kills the first process that computes piece 3."""
    if piece == 3 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return piece * 10


def always_fatal(piece):
    os.kill(os.getpid(), signal.SIGKILL)


def refusing(piece):
    raise DataError(f"piece {piece} is bad")


@pytest.mark.slow
def test_processes(tmp_path):
    with Processes(2) as executor:
        assert list(executor.map(Work(fatal, (), (tmp_path / "struck",)), range(6))) == [0, 10, 20, 30, 40, 50]
        assert (tmp_path / "struck").exists()
        with pytest.raises(DataError, match="piece 0 is bad"):
            list(executor.map(Work(refusing), range(3)))
        with pytest.raises(ExecutorError, match=r"ended 3 times while it computed the same piece"):
            list(executor.map(Work(always_fatal), range(2)))
        with pytest.raises(InputError, match="cannot be sent to another process"):
            list(executor.map(Work(fatal, (threading.Lock(),)), range(2)))
        path = tmp_path / "rows.npy"
        np.save(path, rows())
        here = lwa.sample(MODEL, path, **ASKED)
        for data in (path, rows()):
            there = lwa.sample(MODEL, data, **ASKED, executor=executor)
            np.testing.assert_array_equal(here.posterior["theta"], there.posterior["theta"])


def test_what_workers_do_with_rows_is_what_is_done_here():
    array = np.arange(10.0)
    found = compute_pieces(
        Plain(array), (lambda start, blocks: [block.tolist() for block in blocks], 4, ()), [(0, 6), (6, 10)]
    )
    assert found == [[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]], [[6.0, 7.0, 8.0, 9.0]]]
