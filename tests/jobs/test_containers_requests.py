"""A request for a container, and the commands that runtimes make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.core.errors import BadRequest, Refused
from strata.jobs.accelerators.records import Accelerator, Found, Library, Support
from strata.jobs.containers.cache import Image
from strata.jobs.containers.preparation import User, start
from strata.jobs.containers.records import Bind, Container, Ready
from strata.jobs.containers.runtimes import RUNTIMES, runtime
from strata.jobs.containers.runtimes.bundle import configuration
from strata.provisioning.images.release import ImageConfig

ALICE = User(1000, 100, "alice", "/home/alice")
READY = Ready(
    root="/images/x/root",
    reference="registry.site/x:1",
    binds=(Bind(source="/scratch"), Bind(source="/sw", target="/opt/sw", read_only=True)),
    devices=("/dev/nvidia0",),
    env={"A": "b c"},
    workdir="/work",
    asked=Container(image="x:1", home="user"),
    home_path="/home/alice",
)
GPUS = Found(
    accelerators=tuple(
        Accelerator(
            address=f"0:{at}", make="nvidia", kind="gpu", index=at, id=f"GPU-{at}", devices=(f"/dev/nvidia{at}",)
        )
        for at in range(2)
    ),
    support={
        "nvidia": Support(
            devices=("/dev/nvidiactl",),
            libraries=(Library(name="libcuda.so.1", path="/usr/lib/libcuda.so.580"),),
            programs=("/usr/bin/nvidia-smi",),
        )
    },
)


@pytest.fixture
def image(tmp_path: Path) -> Image:
    for place in ("usr/local/nvidia/lib64", "usr/local/nvidia/bin", "data"):
        (tmp_path / place).mkdir(parents=True)
    config = ImageConfig(argv=("/bin/serve", "--all"), env=("PATH=/bin", "LD_LIBRARY_PATH=/opt/lib"), cwd="/srv")
    return Image(digest="sha256:0", reference="x:1", root=str(tmp_path), config=config, entrypoint=("/bin/serve",))


def test_every_runtime_is_told_all_that_is_asked_for_and_the_program_is_at_the_end() -> None:
    for name in RUNTIMES:
        if name in ("runc", "crun"):
            continue  # they say it in a file
        words = RUNTIMES[name].command(READY, ["prog", "--flag", "a b"], "/folder")
        assert words[-3:] == ["prog", "--flag", "a b"], name
        whole = "\0".join(words)
        assert all(word in whole for word in ("/scratch", "/sw", "/opt/sw", "b c", "/work")), name
        can = RUNTIMES[name].abilities
        assert ("/images/x/root" in whole) == (can.image == "folder" and name != "udocker"), name
        assert ("/dev/nvidia0" in whole) == can.hides_devices, f"{name}: or all of them are there"


def test_apptainer_enroot_sarus_and_shifter_are_told_in_their_own_words() -> None:
    assert RUNTIMES["apptainer"].command(READY, ["p"], "") == [
        *("apptainer", "exec", "--userns", "--contain", "--no-init", "--pwd", "/work", "--no-pid"),
        *("--home", "/home/alice", "--bind", "/scratch:/scratch", "--bind", "/sw:/opt/sw:ro", "--bind", "/dev/nvidia0"),
        *("--env", "A=b c", "/images/x/root", "p"),
    ]
    assert "--mount=type=bind,source=/sw,destination=/opt/sw,readonly" in RUNTIMES["sarus"].command(READY, ["p"], "")
    assert RUNTIMES["shifter"].command(READY, ["p"], "")[1] == "--image=registry.site/x:1"
    assert "/sw:/opt/sw:x-create=auto,bind,ro" in RUNTIMES["enroot"].command(READY, ["p"], "")


def test_a_bundle_says_it_in_a_file_with_the_job_s_environment_below_what_was_asked_for() -> None:
    told = configuration(
        Ready(
            asked=Container(image="x:1"), root="/r", env={"A": "1"}, inherited={"A": "0", "SECRET": "s"}, uid=5, gid=6
        ),
        ["p"],
    )
    assert told["process"]["env"] == ["A=1", "SECRET=s"] and told["process"]["capabilities"]["bounding"] == []
    assert told["root"] == {"path": "/r", "readonly": True} and told["process"]["noNewPrivileges"]
    assert told["linux"]["uidMappings"] == [{"containerID": 0, "hostID": 5, "size": 1}]


def test_nothing_of_the_job_s_environment_is_in_a_command(image: Image) -> None:
    begun = start(Container(image="x:1", runtime="podman"), image, ["p"], ALICE, {"TOKEN": "secret"})
    for name in ("bubblewrap", "charliecloud", "podman", "udocker", "runc", "apptainer"):
        assert "secret" not in " ".join(RUNTIMES[name].command(begun.ready, begun.argv, "/f")), name


@pytest.mark.parametrize(
    ("asked", "runtime_", "why"),
    [
        ({"writable": True}, "bubblewrap", "has no overlay"),
        ({"home": "tmp"}, "charliecloud", "no home of the kind 'tmp'"),
        ({"own_pids": True}, "udocker", "shows the processes of the node"),
        ({"clear_env": True}, "enroot", "takes the environment over"),
        ({"devices": ("nvidia.com/gpu=0",)}, "charliecloud", "shows all devices"),
        ({"binds": (Bind(source="/data", read_only=True),)}, "charliecloud", "can be written to"),
    ],
)
def test_what_a_runtime_cannot_do_is_refused_with_the_reason_and_those_that_can(
    image: Image, asked: dict[str, object], runtime_: str, why: str
) -> None:
    container = Container(image="x:1", runtime=runtime_, **asked)  # type: ignore[arg-type]
    with pytest.raises(Refused, match=why) as refused:
        start(container, image, ["p"], ALICE, {}, found=GPUS)
    assert "native" in refused.value.hint and runtime_ not in refused.value.hint


def test_a_place_that_the_image_lacks_is_refused_where_the_runtime_cannot_make_it(image: Image) -> None:
    binds = (Bind(source="/scratch"),)
    with pytest.raises(Refused, match="nothing at /scratch"):
        start(Container(image="x:1", runtime="charliecloud", binds=binds), image, ["p"], ALICE, {})
    below_home = (Bind(source="/scratch", target="/mnt/scratch"),)
    begun = start(Container(image="x:1", runtime="bubblewrap", binds=below_home), image, ["p"], ALICE, {})
    assert "--tmpfs\0/mnt" in "\0".join(RUNTIMES["bubblewrap"].command(begun.ready, begun.argv, ""))


def test_a_given_gpu_comes_with_its_driver_s_files_and_no_other_gpu(image: Image) -> None:
    asked = Container(image="x:1", runtime="podman", devices=("nvidia.com/gpu=1",))
    ready = start(asked, image, ["p"], ALICE, {}, found=GPUS).ready
    assert ready.devices == ("/dev/nvidia1", "/dev/nvidiactl")
    assert [(bind.source, bind.place) for bind in ready.binds] == [
        ("/usr/lib/libcuda.so.580", "/usr/local/nvidia/lib64/libcuda.so.1"),
        ("/usr/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi"),
    ]
    assert ready.env["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert ready.env["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64:/opt/lib"
    assert ready.env["PATH"] == "/usr/local/nvidia/bin:/bin"
    assert start(Container(image="x:1", runtime="podman"), image, ["p"], ALICE, {}, found=GPUS).ready.devices == ()


def test_what_the_workload_manager_gave_can_be_asked_for_by_a_word(image: Image) -> None:
    asked = Container(image="x:1", runtime="charliecloud", devices=("given",))
    begun = start(asked, image, ["p"], ALICE, {"SLURM_JOB_GPUS": "1"}, found=GPUS, folder="/f")
    assert begun.ready.env["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert begun.places == ("driver-lib/libcuda.so.1", "driver-bin/nvidia-smi"), "it cannot make places by itself"
    assert [bind.place for bind in begun.ready.binds][:2] == ["/usr/local/nvidia/lib64", "/usr/local/nvidia/bin"]


def test_words_are_for_the_image_s_own_program_where_that_is_asked_for(image: Image) -> None:
    def argv(words: list[str], *, entrypoint: bool = False) -> tuple[str, ...]:
        return start(Container(image="x:1", runtime="podman", entrypoint=entrypoint), image, words, ALICE, {}).argv

    assert argv(["one"], entrypoint=True) == ("/bin/serve", "one") and argv(["one"]) == ("one",)
    assert argv([]) == ("/bin/serve", "--all")


@pytest.mark.parametrize("target", ["/", "/proc", "/a/../b", "/a/"])
def test_a_bind_cannot_cover_what_is_the_container_s_own_nor_lead_elsewhere(image: Image, target: str) -> None:
    with pytest.raises(BadRequest):
        asked = Container(image="x:1", runtime="podman", binds=(Bind(source="/data", target=target),))
        start(asked, image, ["p"], ALICE, {})


def test_a_runtime_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(BadRequest, match="charliecloud"):
        runtime("docker")
