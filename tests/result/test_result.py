"""The result: what ArviZ reads, what is kept on disk, and what a damaged folder says."""

import errno
import json
import pickle
import zlib
from pathlib import Path

import arviz
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import lwa
from lwa.storage.run_folder import MANIFEST
from tests.support import SEVERAL, Y, run, sample

STATS = ["lp", "acceptance_rate", "accepted", "subset_accepted", "subset_distance", "n_rows_read"]


@pytest.fixture(scope="module")
def fit():
    return run(seed=3)


@pytest.fixture(scope="module")
def several():
    return sample(SEVERAL, thinning=1)


@pytest.fixture
def saved(fit, tmp_path):
    return fit.save(tmp_path / "run")


def assert_same(one, other):
    """Bit for bit."""
    for group in ("posterior", "sample_stats"):
        mine, yours = getattr(one, group), getattr(other, group)
        assert list(mine) == list(yours)
        for name in mine:
            assert mine[name].dtype == yours[name].dtype
            assert mine[name].shape == yours[name].shape
            assert mine[name].tobytes() == yours[name].tobytes()
    assert dict(one.attributes) == dict(other.attributes)
    assert dict(one.dims) == dict(other.dims)
    assert dict(one.coords) == dict(other.coords)


# What ArviZ reads


def test_idata_is_a_tree_that_arviz_reads(fit):
    assert isinstance(fit.idata, xarray.DataTree)
    assert sorted(fit.idata.children) == ["posterior", "sample_stats"]
    assert fit.idata.posterior["theta"].dims == ("chain", "draw")
    assert list(arviz.summary(fit.idata).index) == ["theta"]
    assert arviz.ess(fit.idata)["theta"] > 0
    assert fit.summary().equals(arviz.summary(fit.idata))


def test_sample_stats(fit):
    stats = fit.idata.sample_stats
    assert list(fit.sample_stats) == STATS
    assert list(stats.data_vars) == STATS
    assert all(stats[name].shape == (2, 20) for name in STATS)
    assert stats["accepted"].dtype == bool
    assert stats["n_rows_read"].dtype == np.int64
    assert (stats["n_rows_read"] == 20 * fit.attributes["thinning"]).all()
    assert ((stats["acceptance_rate"] >= 0) & (stats["acceptance_rate"] <= 1)).all()
    assert ((stats["subset_accepted"] >= 0) & (stats["subset_accepted"] <= 1)).all()


def test_lp_is_the_log_target_of_a_whole_data_subset():
    fit = run(subset_size=len(Y), thinning=1)
    theta = fit.posterior["theta"]
    expected = -0.5 * (theta / 10) ** 2 - 0.5 * ((Y - theta[..., None]) ** 2).sum(-1)
    np.testing.assert_allclose(fit.sample_stats["lp"], expected, rtol=1e-5)


def test_names_dims_and_coords(several):
    posterior = several.idata.posterior
    assert set(posterior.data_vars) == {"mu", "beta", "deep.loading"}
    assert posterior["mu"].shape == (2, 20)
    assert posterior["beta"].dims == ("chain", "draw", "covariate")
    assert posterior["covariate"].values.tolist() == ["age", "dose", "sex"]
    assert posterior["deep.loading"].dims == ("chain", "draw", "deep.loading_dim_0", "deep.loading_dim_1")
    assert posterior["deep.loading"].shape == (2, 20, 2, 2)
    assert "unused" not in posterior.coords
    assert {"mu", "beta[age]", "beta[dose]", "beta[sex]"} < set(arviz.summary(several.idata).index)
    assert len(several.summary()) == 8


@pytest.mark.parametrize(("init", "names"), [(0.0, ["theta"]), (jnp.zeros(2), ["theta"]), ((0.0, 0.0), ["0", "1"])])
def test_names_of_a_theta_that_is_no_dict(init, names):
    assert list(lwa.Model(lambda theta, y: y, lambda theta: 0.0, init).shapes) == names


def test_attributes_say_how_to_repeat_it(fit):
    told = fit.attributes
    assert told["seed"] == 3
    assert set(told["versions"]) == {"jax", "jaxlib", "numpy", "python"}
    assert told["inference_library"] == "lwa"
    assert told["inference_library_version"] == lwa.__version__
    assert told["settings"]["subset_size"] == 20
    assert told["settings"]["subset_move"] == "Swap(k=1, every=1)"
    assert told["rows"] == len(Y)
    assert told["rows_read"] == told["moves"] * 2 * 20
    assert told["fingerprint"] == run(thinning=1).attributes["fingerprint"]
    assert told["fingerprint"] != sample(data=Y[::-1], thinning=1).attributes["fingerprint"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert fit.idata.attrs["seed"] == 3
    assert json.loads(fit.idata.posterior.attrs["settings"]) == told["settings"]


def test_settings_are_strict_json_that_any_process_writes_alike():
    settings = run(epsilon=float("inf"), thinning=1, budget=600).attributes["settings"]
    assert settings["epsilon"] == "inf"
    assert json.loads(json.dumps(settings, allow_nan=False)) == settings
    assert " at 0x" not in json.dumps(settings)


@pytest.mark.filterwarnings("ignore:Only .* of the moves:lwa.LwaWarning")  # by chance, of some seeds
def test_a_fresh_seed_is_recorded_and_repeats_the_draws():
    first = run(seed=None, thinning=1)
    assert first.attributes["seed"] != run(seed=None, thinning=1).attributes["seed"]
    again = run(seed=first.attributes["seed"], thinning=1)
    assert first.posterior["theta"].tobytes() == again.posterior["theta"].tobytes()
    assert first.sample_stats["lp"].tobytes() == again.sample_stats["lp"].tobytes()


def test_repr(fit):
    assert repr(fit).startswith("lwa.Result: 2 chains x 20 draws of theta")


# On disk


@pytest.mark.parametrize("which", ["fit", "several"])
def test_a_saved_run_is_loaded_bit_for_bit(which, request, tmp_path):
    result = request.getfixturevalue(which)
    loaded = lwa.load(result.save(tmp_path / "new" / "run"))
    assert_same(result, loaded)
    xarray.testing.assert_identical(result.idata, loaded.idata)


def test_a_run_is_plain_files(saved):
    assert sorted(file.name for file in saved.iterdir()) == ["draws-00000.npy", MANIFEST]
    manifest = json.loads((saved / MANIFEST).read_text())
    assert (manifest["format"], manifest["version"]) == ("lwa-run", 1)
    segment = np.load(saved / "draws-00000.npy", allow_pickle=False)
    assert segment.shape == (2, 20)
    assert segment.dtype.names[0] == "posterior/theta"


def test_saving_over_a_run_replaces_it(fit, several, saved):
    (saved / "notes.txt").write_text("mine")
    (saved / "draws-final.npy").write_text("mine, too")
    assert_same(several, lwa.load(several.save(saved)))
    assert_same(fit, lwa.load(fit.save(saved)))
    names = sorted(file.name for file in saved.iterdir())
    assert names == ["draws-00002.npy", "draws-final.npy", MANIFEST, "notes.txt"]


def no_space(*args, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("where", ["write_array", "manifest"])
def test_a_failed_save_leaves_the_old_run(fit, several, saved, monkeypatch, where):
    with monkeypatch.context() as patch:
        if where == "write_array":
            patch.setattr(np.lib.format, "write_array", no_space)
        else:
            patch.setattr(Path, "replace", no_space)
        with pytest.raises(lwa.RunFolderError, match=r"No space left on device\. Pass another folder"):
            several.save(saved)
    assert_same(fit, lwa.load(saved))
    assert sorted(file.name for file in saved.iterdir()) == ["draws-00000.npy", MANIFEST]
    assert_same(several, lwa.load(several.save(saved)))


def test_a_first_save_that_failed_can_be_tried_again(fit, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "write_array", no_space)
        with pytest.raises(lwa.RunFolderError):
            fit.save(tmp_path / "run")
    assert_same(fit, lwa.load(fit.save(tmp_path / "run")))


def test_what_a_killed_save_left_behind_is_no_obstacle(fit, tmp_path):
    (tmp_path / "draws-00000.npy").write_bytes(b"half")
    (tmp_path / "manifest.json.partial").write_text("{")
    assert_same(fit, lwa.load(fit.save(tmp_path)))


@pytest.mark.parametrize("name", ["thesis.tex", "draws-final.npy", MANIFEST])
def test_a_folder_with_other_things_is_left_alone(fit, tmp_path, name):
    (tmp_path / name).write_text('{"name": "a web site"}')
    with pytest.raises(lwa.RunFolderError, match=r"not a saved run\. Pass the path of a new or empty folder"):
        fit.save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == '{"name": "a web site"}'


def test_a_file_is_no_folder(fit, tmp_path):
    file = tmp_path / "run"
    file.write_text("mine")
    with pytest.raises(lwa.RunFolderError, match="Pass the path of a new or empty folder"):
        fit.save(file)
    assert file.read_text() == "mine"


def test_labels_and_names_of_any_kind_are_saved(several, tmp_path):
    labels = {"covariate": list(np.arange(3)), "unused": [np.datetime64("2024-01-01"), 1]}
    theta = several.posterior["mu"]
    odd = lwa.Result({"θ": theta, "beta": several.posterior["beta"]}, several.sample_stats, {}, several.dims, labels)
    loaded = lwa.load(odd.save(tmp_path / "run"))
    assert loaded.posterior["θ"].tobytes() == theta.tobytes()
    assert loaded.coords["covariate"] == [0, 1, 2]
    assert loaded.coords["unused"] == ["2024-01-01", 1]


def test_a_run_without_draws_is_saved_too(tmp_path):
    with pytest.warns(lwa.LwaWarning, match="the budget was spent after 0 of 20 draws"):
        none = run(budget=lwa.RowReads(1))
    assert none.draws == 0
    assert none.idata.posterior["theta"].shape == (2, 0)
    assert_same(none, lwa.load(none.save(tmp_path / "run")))
    with pytest.raises(lwa.InputError, match="no draws to summarise"):
        none.summary()


def test_netcdf(several, tmp_path):
    path = several.to_netcdf(tmp_path / "run.nc")
    with xarray.open_datatree(path, engine="h5netcdf") as read:
        xarray.testing.assert_equal(read.load(), several.idata)
        assert read.attrs["seed"] == 1
        assert json.loads(read.attrs["settings"]) == several.attributes["settings"]


def test_netcdf_with_a_seed_beyond_64_bits(tmp_path):
    fit = run(seed=2**80 + 1, thinning=1)
    path = fit.to_netcdf(tmp_path / "run.nc")
    with xarray.open_datatree(path, engine="h5netcdf") as read:
        assert int(read.attrs["seed"]) == 2**80 + 1


# The certificate


def certifiable():
    return run(subset_size=len(Y), draws=300, thinning=4, seed=5)


@pytest.mark.parametrize("built_before", [True, False])
def test_a_certificate_is_kept_with_the_draws(tmp_path, built_before):
    fit = certifiable()
    assert fit.certificate is None
    assert "certificate" not in repr(fit)
    held = fit.idata if built_before else None
    found = fit.certify(progress=False)
    assert fit.attributes["certificate"] == found.as_dict()
    assert held is None or fit.idata is held
    groups = [fit.idata, fit.idata.posterior, fit.idata.sample_stats]
    assert all(json.loads(group.attrs["certificate"]) == found.as_dict() for group in groups)
    loaded = lwa.load(fit.save(tmp_path / "run"))
    assert_same(fit, loaded)
    for kept in (fit, loaded):
        assert isinstance(kept.certificate, lwa.Certificate)
        assert repr(kept.certificate) == repr(found)
        assert kept.certificate.as_dict() == found.as_dict()
    with xarray.open_datatree(fit.to_netcdf(tmp_path / "run.nc"), engine="h5netcdf") as read:
        assert json.loads(read.attrs["certificate"]) == found.as_dict()


def test_the_verdict_is_seen_at_a_glance():
    fit = certifiable()
    outcome = fit.certify(progress=False).outcome
    [line] = [line for line in repr(fit).splitlines() if "certificate" in line]
    assert line.startswith(f"  certificate: {outcome}: ")
    assert line in f"  certificate: {fit.certificate.verdict}"
    assert "exact moves" not in line  # the first sentence only


def test_the_last_certificate_counts():
    fit = certifiable()
    attributes = fit.attributes
    fit.certify(progress=False, points=50)
    fit.certify(progress=False)
    assert fit.certificate.points == 300
    assert "certificate" not in attributes


# Damage


def rewrite(folder, **changes):
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | changes))


def reseal(folder, content, name="draws-00000.npy"):
    """Other content under a checksum that fits."""
    (folder / name).write_bytes(content)
    rewrite(folder, segments=[{"file": name, "draws": 20, "crc32": zlib.crc32(content)}])


def flip_a_bit(folder):
    content = bytearray((folder / "draws-00000.npy").read_bytes())
    content[-100] ^= 1
    (folder / "draws-00000.npy").write_bytes(content)


def truncate(folder):
    file = folder / "draws-00000.npy"
    file.write_bytes(file.read_bytes()[:-1])


def plain_array(folder):
    np.save(folder / "draws-00000.npy", np.zeros((2, 20)))
    reseal(folder, (folder / "draws-00000.npy").read_bytes())


def without(key):
    def spoil(folder):
        manifest = json.loads((folder / MANIFEST).read_text())
        del manifest[key]
        (folder / MANIFEST).write_text(json.dumps(manifest))

    return spoil


def outside(name):
    return lambda folder: rewrite(folder, segments=[{"file": name, "draws": 20, "crc32": 0}])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(lambda folder: (folder / MANIFEST).unlink(), "no manifest.json. Pass a folder", id="no manifest"),
        pytest.param(lambda folder: (folder / MANIFEST).write_text("{"), "cannot be read", id="bad JSON"),
        pytest.param(lambda folder: (folder / MANIFEST).write_bytes(b"\xff"), "cannot be read", id="not text"),
        pytest.param(lambda folder: (folder / MANIFEST).write_text("[" * 10**5), "cannot be read", id="deep JSON"),
        pytest.param(lambda folder: (folder / MANIFEST).write_text("[]"), "'lwa-run', version 1", id="a list"),
        pytest.param(lambda folder: rewrite(folder, format="zarr"), "is of format 'zarr'", id="another format"),
        pytest.param(
            lambda folder: rewrite(folder, version=2), "version 2; 'lwa-run', version 1", id="a later version"
        ),
        pytest.param(lambda folder: rewrite(folder, segments=[]), "is damaged", id="no segments"),
        pytest.param(lambda folder: rewrite(folder, segments=[1]), "is damaged", id="segments of numbers"),
        pytest.param(without("segments"), "is damaged: 'segments'", id="segments left out"),
        pytest.param(without("attributes"), "is damaged: 'attributes'", id="attributes left out"),
        pytest.param(truncate, "its checksum is not the manifest's", id="truncated"),
        pytest.param(flip_a_bit, "its checksum is not the manifest's", id="a bit flip"),
        pytest.param(lambda folder: (folder / "draws-00000.npy").unlink(), "The run is incomplete", id="no segment"),
        pytest.param(lambda folder: reseal(folder, b"PK\x03\x04"), "is damaged", id="an archive"),
        pytest.param(plain_array, "is damaged: 'posterior' is missing", id="another array"),
        pytest.param(outside("../secret.npy"), "names a file outside the run", id="a path upwards"),
        pytest.param(outside("/etc/passwd"), "names a file outside the run", id="an absolute path"),
        pytest.param(outside(".."), "cannot be read", id="the parent"),
    ],
)
def test_a_damaged_run_says_so(saved, spoil, message):
    spoil(saved)
    with pytest.raises(lwa.RunFolderError) as caught:
        lwa.load(saved)
    assert message in str(caught.value)
    assert str(saved) in str(caught.value)


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(lwa.RunFolderError, match=r"no manifest.json. Pass a folder made by fit.save\(\)"):
        lwa.load(tmp_path / "nothing")


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return open, (self.file, "w")


def test_a_pickle_is_refused_and_not_run(saved, tmp_path):
    sprung = tmp_path / "sprung"
    np.save(tmp_path / "trap.npy", np.array([[Trap(str(sprung))]], object), allow_pickle=True)
    content = (tmp_path / "trap.npy").read_bytes()
    reseal(saved, content)
    with pytest.raises(lwa.RunFolderError, match="Object arrays cannot be loaded"):
        lwa.load(saved)
    reseal(saved, pickle.dumps(Trap(str(sprung))))
    with pytest.raises(lwa.RunFolderError, match="is damaged"):
        lwa.load(saved)
    assert not sprung.exists()
