"""Units of work on a real Ray cluster of several nodes, some of which are lost, have the same results as here."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import engine_work
import pytest
import real
from hypothesis import given
from hypothesis import strategies as st

from ropescope import cli
from ropescope.models.load import load_model
from ropescope.models.source import open_source, source_of
from ropescope.runs import HERE, Engine, cached_units, in_order, spread
from ropescope.runs import cluster as clusters
from ropescope.studies import canonical
from ropescope.studies.bench.cluster import bench_engine, canonical_job, joined, loopback, profile_job
from ropescope.training import seeds, trainer

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")

SMALL = canonical.Settings(
    items=4, letters=3, symbols=4, repeated=4, few=2, attributes=3, angles=3, seeds=2, scored=10, steps=20,
)  # fmt: skip


@pytest.fixture(scope="session")
def cluster():
    here = os.pathsep.join((str(Path(__file__).parent), str(Path(__file__).parents[1])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", here)
        with loopback(2) as found:
            yield found


@pytest.fixture(scope="session")
def ray_engine(cluster):
    with joined(cluster):
        yield Engine("ray", cluster.address)


def units(*sizes: int) -> list[dict]:
    return [{"number": number, "size": size} for number, size in enumerate(sizes)]


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


@pytest.mark.cluster
def test_results_are_those_of_here_in_order(ray_engine):
    shared, asked = {"slow": 0.5, "bad": ()}, units(3, 0, 200_000, 1, 5, 2)  # the third goes through the object store
    there = list(in_order(spread(engine_work.halve, shared, asked, ray_engine)))
    here = list(in_order(spread(engine_work.halve, shared | {"slow": 0}, asked)))
    assert len(there) == len(asked)
    assert all(map(same, here, there))
    (_, more), *_ = spread(engine_work.halve, shared, asked[:1], ray_engine, threads=1)
    assert more["threads"] == 1


@pytest.mark.cluster
def test_units_of_a_lost_node_are_started_again(cluster, ray_engine, tmp_path):
    lost = []
    coming = spread(engine_work.wait_for, str(tmp_path), list(range(6)), replace(ray_engine, on_lost=lost.append))

    def kill():
        node = cluster.add()
        while len(list(tmp_path.glob("begun-*"))) < 3:
            time.sleep(0.1)
        cluster.kill(node)
        (tmp_path / "go").touch()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    assert sorted(coming) == [(n, n) for n in range(6)]
    killer.join()
    assert lost, "a unit was under way on the node"
    assert set(lost) <= set(range(6))


@pytest.mark.cluster
@pytest.mark.weights
def test_a_profile_and_sweeps_are_the_same_to_the_byte_while_a_node_is_lost(cluster, ray_engine, tmp_path):
    folder = str(real.folder("stories15M"))
    for job, others in ((profile_job(load_model(folder), folder, 3, 4, 0), 3), (canonical_job(SMALL), 2)):
        cluster.add()  # which is lost
        found = bench_engine(job, cluster, tmp_path / job.name)
        assert found["same_bytes"]
        assert found["files"] == job.units + others
        assert found["speed_up"] > 0


RECIPE = trainer.Recipe(
    "number", task_sizes={"hops": 2}, samples=(200, 20, 20), layers=1, width=16, mlp_width=16, steps=400, warm_up=5,
    watch_every=20, probe=8, checkpoint_every=10,
)  # fmt: skip


def recipes(folder: Path) -> dict[Path, trainer.Recipe]:
    return {folder / f"number-{seed}": replace(RECIPE, seed=seed) for seed in (0, 1)}


def run_files(folder: Path) -> dict[str, bytes]:
    """All of a training run but its summary, which tells how long it took."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "summary.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.cluster
def test_seeds_are_trained_the_same_while_nodes_are_lost(cluster, ray_engine, tmp_path):
    here = dict(seeds.train_seeds(recipes(tmp_path / "here")))
    with pytest.raises(ValueError, match="already holds a run: pass resume"):
        next(seeds.train_seeds(recipes(tmp_path / "here")))

    def kill():
        while len(list((tmp_path / "there").glob("*/checkpoint.safetensors"))) < 2:
            time.sleep(0.01)
        cluster.kill(2)

    lost = []
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    there = dict(seeds.train_seeds(recipes(tmp_path / "there"), engine=replace(ray_engine, on_lost=lost.append)))
    killer.join()
    cluster.add()
    assert lost
    assert there.keys() == recipes(tmp_path / "there").keys()
    for name in ("number-0", "number-1"):
        assert run_files(tmp_path / "here" / name) == run_files(tmp_path / "there" / name)
        assert here[tmp_path / "here" / name]["test_accuracy"] == there[tmp_path / "there" / name]["test_accuracy"]
    assert not list((tmp_path / "there").glob(".shared*"))
    summary = tmp_path / "there" / "number-0" / "summary.json"
    before = summary.read_bytes()
    again = dict(seeds.train_seeds(recipes(tmp_path / "there"), resume=True, engine=ray_engine))
    assert again == there
    assert summary.read_bytes() == before, "what has ended is not touched"


@pytest.mark.cluster
def test_an_error_is_told_once_and_units_before_it_come(ray_engine, tmp_path):
    paths = [tmp_path / f"{n}.safetensors" for n in range(8)]
    shared = {"slow": 0.5, "bad": (4, 6)}
    for engine in (ray_engine, HERE):
        with pytest.raises(ValueError, match=r"^unit 4 is bad$"):
            list(cached_units(paths, engine_work.halve, shared, units(*[2] * 8), engine))
        assert {path for path in paths if path.exists()} >= set(paths[:4])
        assert not paths[4].exists()
        for path in paths:
            path.unlink(missing_ok=True)


@pytest.mark.cluster
def test_cached_units_are_not_done_again(ray_engine, tmp_path):
    paths, asked = [tmp_path / f"{n}.safetensors" for n in range(5)], units(1, 2, 3, 4, 5)
    fine = {"slow": 0, "bad": ()}
    first = list(cached_units(paths, engine_work.halve, fine, asked, ray_engine))
    paths[1].unlink()
    paths[3].write_bytes(paths[3].read_bytes()[:40])  # cut short
    again = list(cached_units(paths, engine_work.halve, fine | {"bad": (0, 2, 4)}, asked, ray_engine))
    assert all(map(same, first, again))
    assert all(map(same, first, cached_units(paths, engine_work.crash, None, asked)))


@pytest.mark.cluster
def test_a_unit_that_crashes_its_worker_ends_the_run(ray_engine, monkeypatch):
    lost = []
    monkeypatch.setattr(clusters, "CRASHES", 2)
    with pytest.raises(ValueError, match="crashed its worker 2 times: it may need more memory"):
        list(spread(engine_work.crash, None, [0], replace(ray_engine, on_lost=lost.append)))
    assert lost == [0]


@pytest.mark.cluster
def test_what_workers_lack_is_one_sentence(ray_engine, monkeypatch):
    with pytest.raises(ValueError, match="a worker of the cluster lacks something: install"):
        list(spread(engine_work.lacking, None, [0], ray_engine))
    with pytest.raises(ValueError, match="a unit needs 99 threads and no machine of the cluster has more than 1 CPUs"):
        list(spread(engine_work.halve, {}, [0], ray_engine, threads=99))
    with pytest.raises(ValueError, match="put the function at the top level of a module"):
        list(spread(lambda shared, unit: unit, None, [0], ray_engine))
    mine = clusters.installation() | {"torch": "1.0"}
    monkeypatch.setattr(clusters, "installation", lambda: mine)
    with pytest.raises(ValueError, match=r"torch is 2\S+ on .* and 1.0 where the run was started"):
        list(spread(engine_work.halve, {}, [0], ray_engine))


@pytest.mark.weights
def test_workers_open_the_same_weights_or_say_so(tmp_path):
    folder = real.folder("stories15M")
    source = source_of(load_model(str(folder)).model, str(folder), "float32", False)
    assert source.name == str(folder.resolve())
    assert open_source(source).config.model_type == "llama"
    with pytest.raises(ValueError, match="holds other weights than where the run was started: copy them again"):
        open_source(replace(source, parameters="0" * 64))
    with pytest.raises(ValueError, match=rf"on {socket.gethostname()}: .* is neither a folder nor a GGUF file"):
        open_source(replace(source, name=str(tmp_path / "none")))


def test_a_machine_that_does_not_share_the_disk_says_so(tmp_path):
    sharing = seeds.Sharing(False, tmp_path / ".shared-x", "x")
    with pytest.raises(ValueError, match=r"does not see .* choose `out` on a disk that all machines share"):
        seeds.train_unit(sharing, (tmp_path / "run", RECIPE))
    (tmp_path / ".shared-x").write_text("y")
    with pytest.raises(ValueError, match="does not see"):
        seeds.train_unit(sharing, (tmp_path / "run", RECIPE))
    assert not (tmp_path / "run").exists()


@given(order=st.permutations(range(7)))
def test_results_are_put_in_order(order):
    assert list(in_order((n, n * n) for n in order)) == [n * n for n in range(7)]


@pytest.mark.parametrize(
    ("name", "address", "says"),
    [
        ("rya", None, "engine must be one of here, ray, not 'rya'"),
        ("here", "auto", "address is that of a Ray cluster: set engine to ray"),
        *(
            ("ray", address, "address must be host:port of a Ray cluster's head, or auto")
            for address in ("", "head", "head:", ":6379", "head:0", "head:99999", "ray://head:10001", "head:port")
        ),
    ],
)
def test_engines_that_make_no_sense(name, address, says):
    with pytest.raises(ValueError, match=says):
        Engine(name, address)


@pytest.mark.cluster
def test_no_cluster_is_one_sentence(monkeypatch, ray_engine):
    import ray  # noqa: PLC0415

    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # this process belongs to a cluster already
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf"no Ray cluster answers at 127.0.0.1:{port} \(.+\): is it running\?"):
            list(spread(engine_work.halve, {}, [0], Engine("ray", f"127.0.0.1:{port}")))
        taken.listen()
        monkeypatch.setattr(clusters, "PATIENCE", 5)
        with pytest.raises(ValueError, match=rf"the Ray cluster at 127.0.0.1:{port} did not answer within 5 seconds"):
            list(spread(engine_work.halve, {}, [0], Engine("ray", f"127.0.0.1:{port}")))
    monkeypatch.setattr(clusters, "JOIN", "raise SystemExit('Traceback:\\n  there\\nConnectionError: nobody home')")
    with pytest.raises(ValueError, match="the Ray cluster at auto cannot be joined: ConnectionError: nobody home"):
        list(spread(engine_work.halve, {}, [0], Engine("ray", "auto")))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"engine ray needs Ray: pip install 'ropescope\[ray\]'"):
        list(spread(engine_work.halve, {}, [0], Engine("ray")))


SETTINGS = ['task_sizes={"hops": 2}', "samples=[200, 20, 20]", "layers=1", "width=16", "mlp_width=16", "warm_up=5", "probe=8"]


def command(*arguments: str) -> list[str]:
    program = "import sys; from ropescope.cli import main; sys.argv = ['ropescope', *sys.argv[1:]]; main()"
    return [sys.executable, "-c", program, *arguments]


def train_command(cluster, folder: Path, steps: int, *more: str) -> list[str]:
    changes = [text for change in (*SETTINGS, f"steps={steps}", "checkpoint_every=10") for text in ("--set", change)]
    engine = ["--engine", "ray", "--address", cluster.address]
    return command("train", "number", "--seeds", "0,1", "--out", str(folder), *changes, *engine, *more)


def test_the_command_trains_several_seeds_here(tmp_path, monkeypatch, capsys):
    changes = [text for change in (*SETTINGS, "steps=20") for text in ("--set", change)]

    def train(*options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ropescope", "train", "number", "--out", str(tmp_path), *changes, *options])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return left.value.code, *capsys.readouterr()

    code, out, err = train("--seeds", "0,1")
    assert (code, err) == (0, "")
    assert [line.split(":")[0] for line in out.splitlines()] == [str(tmp_path / f"number-{n}") for n in (0, 1)]
    assert "already holds a run: pass resume" in train("--seeds", "2,1")[2]
    assert not (tmp_path / "number-2").exists(), "nothing is begun unless all can be"
    again = train("--seeds", "0,1,1,2", "--resume")
    assert again[0] == 0
    assert again[1].startswith(out)
    assert (tmp_path / "number-2" / "summary.json").exists()


@pytest.mark.cluster
def test_a_cluster_of_our_own_leaves_nothing_behind(tmp_path):
    home = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {"HOME": str(tmp_path)}
    program = (
        "import os, engine_work; from ropescope.runs import Engine, spread\n"
        "for number, found in spread(engine_work.halve, {'slow': 0, 'bad': ()}, [{'number': 3, 'size': 2}], Engine('ray')):\n"
        "    print(number, found['half'])\n"
        "print(*[name for name in os.environ if name.startswith('RAY_AUTH')])"
    )
    how = {"env": home, "cwd": Path(__file__).parent, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", program], check=False, **how)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 [1.5 1.5]\n\n", "")
    assert not list(tmp_path.iterdir()), "no token is left in the home folder"


@pytest.mark.cluster
def test_the_command_joins_a_cluster_and_can_be_interrupted(cluster, tmp_path):
    long = subprocess.Popen(
        train_command(cluster, tmp_path, 100_000), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not list(tmp_path.glob("*/checkpoint.safetensors")) and long.poll() is None:
        time.sleep(0.1)
    long.send_signal(signal.SIGINT)
    said = long.communicate(timeout=60)
    assert long.returncode == 130, said
    assert said == ("", f"ropescope: interrupted; add --resume to the same command to continue in {tmp_path}\n")
    assert not list(tmp_path.glob(".shared*"))
    done = subprocess.run(train_command(cluster, tmp_path / "short", 20), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "number-0: test accuracy {'1-hop'" in done.stdout
    assert "number-1: test accuracy {'1-hop'" in done.stdout
