"""Runs the commands of a page as a reader would: in one shell, one after the other.

A page is run beside a simulated fleet, unless it says ``service:``

- ``provisioning``: beside a service with all layers that boots machines on the interface ``br0``, as a site's does,
  with two builds of the minimal OS that no machine could run, four nodes ``n[0001-0004]`` in the group ``compute``,
  whose BMCs are simulated ones, and nothing that would boot;
- ``none``: on a machine where nothing runs yet.

Both are machines of their own: what is written anywhere is gone afterwards, and nobody else is on their network.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from docs_support import DOCS, ROOT, SIMULATED, differences, run_on, script, shown_files

from support.minos import SHARED
from support.signed_builds import put_build

SECONDS = 1700
"""For all commands of one page."""
PROGRAMS = {
    "strata": "-m strata.cli",
    "python": "",
    "bmcs": "-m strata.virtual.bmc.server",
    "typing": str(Path(__file__).with_name("docs_typing.py")),
    "slurm-daemons": str(Path(__file__).with_name("docs_slurm.py")),
    "login-provider": str(Path(__file__).with_name("docs_provider.py")),
}
BEGINNING = {
    # rack ADDRESS COUNT [OPTION...]: simulated BMCs at their own addresses from that one on, over TLS.
    "rack": """
first=$1 count=$2; shift 2
ip addr add "$first/25" dev lo
bmcs --nodes "$count" --first-address "$first" --by address --port 443 --tls --scale 0.01 "$@" > bmcs.log 2>&1 &
echo $! >> begun
until curl -sk -o /dev/null "https://$first/redfish/v1/"; do
    kill -0 $! || { cat bmcs.log; exit 1; }
    sleep 0.1
done""",
    # service [ARGUMENT...]: `strata serve` with these, in the background.
    "service": """
strata serve "$@" > service.log 2>&1 &
echo $! >> begun
until strata status > said.status 2>&1; do kill -0 $! || { cat service.log; exit 1; }; sleep 0.1; done""",
    # ended: the last that was begun is ended, as by whoever runs the machine.
    "ended": r"""
pid=$(tail -n 1 begun)
sed -i '$d' begun
kill "$pid"
while grep -qs '^State:\s*[^Z[:space:]]' "/proc/$pid/status"; do sleep 0.1; done""",
    # machine NAME ADDRESS [USER]: another machine on br0, of these files but with a Strata's folders of its own; who is
    # root here may log in there as root and as USER.
    "machine": r"""
name=$1 address=$2 user=${3:-root}
mkdir -p ~/.ssh && chmod 700 ~/.ssh
[ -e ~/.ssh/id_ed25519 ] || ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
id "$user" > said.id 2>&1 || useradd --create-home --shell /bin/bash --password '*' "$user"
ssh-keygen -q -t ed25519 -N '' -f "/etc/ssh/host.$name"
echo "$address $name" >> /etc/hosts
echo "$name,$address $(cat "/etc/ssh/host.$name.pub")" >> ~/.ssh/known_hosts
cp ~/.ssh/id_ed25519.pub /etc/ssh/who-may-log-in
cat > "/etc/ssh/sshd.$name" <<END
ListenAddress $address
HostKey /etc/ssh/host.$name
AuthorizedKeysFile /etc/ssh/who-may-log-in
StrictModes no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
SetEnv PATH=${0%/*}:/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=$PYTHONPATH STRATA_STATE=/var/lib/strata
END
unshare --net --mount --uts --pid --fork --mount-proc --kill-child --propagation private sh -e -c "
    hostname $name
    for own in /run /etc/strata /var/lib/strata; do mount -t tmpfs -o mode=755 none \$own; done
    mkdir /run/sshd
    ip link set lo up
    until ip addr add $address/24 dev eth0; do sleep 0.1; done
    ip link set eth0 up
    exec /usr/sbin/sshd -D -e -f /etc/ssh/sshd.$name" > "sshd.$name.log" 2>&1 &
until child=$(cat /proc/$!/task/$!/children) && [ -n "$child" ]; do sleep 0.1; done
echo $child >> begun
ip link add "to-$name" type veth peer name eth0 netns $child
ip link set "to-$name" master br0 up
until ssh "$name" true 2> said.ssh; do kill -0 $! || { cat "sshd.$name.log"; exit 1; }; sleep 0.1; done""",
    # etcds: three members of an etcd cluster, etcd1 to etcd3.
    "etcds": r"""
members=$(for n in 1 2 3; do printf "etcd$n=http://10.77.0.20$n:2380,"; done)
for n in 1 2 3; do
    ip addr add "10.77.0.20$n/24" dev br0
    echo "10.77.0.20$n etcd$n" >> /etc/hosts
    GOMAXPROCS=1 etcd --name "etcd$n" --data-dir "etcd$n" --initial-cluster "${members%,}" --log-level error \
        --listen-client-urls "http://10.77.0.20$n:2379" --advertise-client-urls "http://10.77.0.20$n:2379" \
        --listen-peer-urls "http://10.77.0.20$n:2380" --initial-advertise-peer-urls "http://10.77.0.20$n:2380" \
        > "etcd$n.log" 2>&1 &
    echo $! >> begun
done
for n in 1 2 3; do until curl -sf "http://10.77.0.20$n:2379/health" | grep -q true; do sleep 0.1; done; done""",
    # slurm CONFIG NODES [MORE]: a Slurm in that file whose NODES have a slurmd each; MORE: it knows these as well.
    "slurm": """
config=$1; mkdir -p "$(dirname "$config")"
slurm-daemons "$@" > slurm.log 2>&1 &
echo $! >> begun
until grep -qx ready slurm.log; do kill -0 $! || { cat slurm.log; exit 1; }; sleep 0.1; done""",
    # gpu: an NVIDIA H200 as one was recorded, as far as files go: another /dev/null, and an nvidia-smi that opens it.
    "gpu": r"""
set -e
[ ! -e gpu ] || exit 0
python -c "from pathlib import Path; from jobs.machine_trees import h200; h200(Path('gpu'))"
for own in /proc/driver /sys/bus/pci; do mount --bind "gpu$own" $own; done
mkdir gpu.dev gpu.written gpu.work
mount -t overlay -o lowerdir=/dev,upperdir=gpu.written,workdir=gpu.work gpu gpu.dev
for kept in pts shm; do [ ! -d /dev/$kept ] || mount --rbind /dev/$kept gpu.dev/$kept; done
for name in nvidia0 nvidiactl nvidia-uvm nvidia-uvm-tools; do mknod -m 666 gpu.dev/$name c 1 3; done
mount --rbind gpu.dev /dev
printf '#!/bin/sh\n: < /dev/nvidia0 && echo "GPU 0: NVIDIA H200"\n' > /usr/bin/nvidia-smi
chmod 755 /usr/bin/nvidia-smi""",
    # files FOLDER [PROGRAM...]: what an image is made of: a shell with its tools, and these programs.
    "files": r"""
set -e
folder=$1; shift
mkdir -p "$folder/bin" "$folder/etc" "$folder/tmp"
cp /bin/busybox "$folder/bin"
for tool in sh cat echo env id ls; do ln -sf busybox "$folder/bin/$tool"; done
for program in "$@"; do
    for file in "$program" $(ldd "$program" | grep -o '/[^ )]*' || true); do
        mkdir -p "$folder${file%/*}" && cp -L "$file" "$folder$file"
    done
done""",
    # seeing WORDS COMMAND...: goes on until it says these words, and is ended then.
    "seeing": r"""
words=$1; shift
said=$(mktemp -u)
mkfifo "$said"
"$@" > "$said" 2>&1 &
while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in *"$words"*) kill $!; wait; exit 0 ;; esac
done < "$said"
exit 1""",
    # person ACCOUNT COMMAND: as an ordinary account, in its home, with an operator's token where there is a service.
    "person": r"""
set -e
name=$1 home=/home/$1
if [ ! -d "$home" ]; then
    useradd --create-home --home-dir "$home" --shell /bin/bash "$name"
    chmod 711 .
    if [ -e "$STRATA_STATE/url" ]; then
        strata auth token create --role operator --name "$name" -o "$home/token"
        cp "$STRATA_STATE/ca/ca.crt" "$home/ca.crt"
        chown "$name:" "$home/token" "$home/ca.crt"
    fi
fi
if [ -e "$home/token" ]; then
    export STRATA_URL="$(cat "$STRATA_STATE/url")" STRATA_CA="$home/ca.crt" STRATA_TOKEN_FILE="$home/token"
fi
cd "$home"
exec setpriv --reuid "$name" --regid "$name" --init-groups \
    env -u STRATA_STATE HOME="$home" USER="$name" bash -c "$2" """,
    # registry NAME: a registry of that name, over TLS; its certificate is registry.crt.
    "registry": r"""
ip addr add 10.77.0.9/24 dev br0
echo "10.77.0.9 $1" >> /etc/hosts
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$1" \
    -addext "subjectAltName=DNS:$1" -keyout registry.key -out registry.crt 2> said.openssl
cat > registry.yml <<END
version: 0.1
log: {level: error}
storage: {filesystem: {rootdirectory: $PWD/registry}}
http: {addr: "10.77.0.9:443", tls: {certificate: $PWD/registry.crt, key: $PWD/registry.key}}
END
OTEL_TRACES_EXPORTER=none docker-registry serve registry.yml > registry.log 2>&1 &
echo $! >> begun
until curl -s --cacert registry.crt "https://$1/v2/"; do
    kill -0 $! || { cat registry.log; exit 1; }
    sleep 0.1
done""",
    # provider PORT: somebody else's login at http://localhost:PORT, and ada at a browser, who does as a command says.
    "provider": """
login-provider "$1" > provider.log 2>&1 &
echo $! >> begun
until curl -sf -o /dev/null "http://localhost:$1/.well-known/openid-configuration"; do
    kill -0 $! || { cat provider.log; exit 1; }
    sleep 0.1
done
login-provider "$1" agree said > browser.log 2>&1 &
echo $! >> begun""",
    # podmans: podman as it works in a container, too: its images are plain files, and it raises no limits.
    "podmans": r"""
set -e
mkdir -p /etc/containers /var/lib/containers
printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n' \
    > /etc/containers/storage.conf
printf '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n[engine]\nruntime = "runc"\n' \
    > /etc/containers/containers.conf""",
}
"""What pages have begin before their own commands; it goes on until the desk is left."""
END = r"""
strata down --delete
touch begun
for pid in $(tac begun); do
    kill "$pid" 2> /dev/null
    while grep -qs '^State:\s*[^Z[:space:]]' "/proc/$pid/status"; do sleep 0.1; done
done
true
"""
"""Ends what was begun, and waits until it has."""
NODES = 4
PASSWORD = "simulated"
"""Of every simulated BMC."""


class Desk:
    """A shell with ``strata`` and ``python`` in its path, in a directory where the documentation is at ``docs``."""

    service = SIMULATED
    """The pages that it is for say this."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "docs").symlink_to(DOCS)
        binaries = directory / "bin"
        binaries.mkdir()
        programs = {name: f'exec "{sys.executable}" {arguments} "$@"' for name, arguments in PROGRAMS.items()}
        # The file that the page shows with these words in it.
        programs["shown"] = 'cat "$(grep -l -m 1 -e "$1" "$SHOWN"-* | head -n 1)"'
        programs |= BEGINNING
        for name, line in programs.items():
            binary = binaries / name
            binary.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
            binary.chmod(0o755)
        self.state = directory / "s"
        self.entering: list[str] = []
        """Comes before every command."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        self.environment = {
            **kept,
            "PATH": f"{binaries}:{os.environ.get('PATH', '')}:/usr/sbin:{Path(sys.executable).parent}",
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}",
            "STRATA_STATE": str(self.state),
        }

    def up(self) -> None:
        """A small fleet, ready; or the one that is there, once it has settled after the page before."""
        SHARED.mkdir(mode=0o700, exist_ok=True)
        self.environment["XDG_CACHE_HOME"] = str(SHARED)
        self.shell(
            "strata status || strata up --simulated --nodes 32 --time-scale 40 --listen 127.0.0.1:0\n"
            'until [ -z "$(strata node list --folded state:converging)" ]; do sleep 0.1; done'
        )

    def down(self) -> None:
        """Nothing is left."""
        self.shell("strata down --delete")

    def shell(self, script: str, seconds: float = SECONDS) -> str:
        """What a script said; it must end well, and nothing that it started outlives it by accident."""
        said = self.directory / "said"
        with said.open("w") as out:
            process = subprocess.Popen(
                [*self.entering, "bash", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.directory,
                env=self.environment,
                start_new_session=True,
            )
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
        text = said.read_text(encoding="utf-8", errors="replace")
        assert status == 0, f"ended with {status}:\n{text[-3000:]}"
        return text

    def page(self, page: Path, seconds: float = SECONDS) -> None:
        """Run the commands of a page that are for such a desk in order, in one shell; each must end, and print, as the
        page says."""
        run = run_on(page, service=self.service)
        files = self.directory / "files"
        files.mkdir(exist_ok=True)
        for number, text in enumerate(shown_files(page)):
            (files / f"{page.stem}-{number}").write_text(text, encoding="utf-8")
        self.environment["SHOWN"] = f"{files}/{page.stem}"
        printed = self.shell(script(run), seconds).replace(str(self.state), "STATE")
        assert differences(run, printed) == [], f"{page.name} shows otherwise"


class Machine(Desk):
    """A shell as root on a machine of its own: it sees the files of this one but for a Strata's that somebody has here,
    and what it writes is in memory; its network is empty but for ``br0`` (10.77.0.1)."""

    service = "none"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        made = directory / "m"
        made.mkdir()
        seen = {str(path) for path in (ROOT, Path(sys.prefix), Path(sys.base_prefix), directory)}
        binds = "\n".join(f"mkdir -p root{path} && mount --rbind {path} root{path}" for path in sorted(seen))
        # Whoever holds its standard input holds the machine.
        text = f"""
            set -e
            cd {made}
            mount -t tmpfs -o mode=755 none .
            mkdir up work root
            mount -t overlay overlay -o lowerdir=/,upperdir=up,workdir=work root
            {binds}
            mount -t proc proc root/proc
            mount --rbind /dev root/dev
            mount -t sysfs sysfs root/sys
            mount --rbind /sys/fs/cgroup root/sys/fs/cgroup
            mkdir -p root/run root/tmp root/old root/etc/strata root/var/lib/strata
            mount -t tmpfs -o mode=755 none root/run
            mount -t tmpfs -o mode=755 none root/etc/strata
            mount -t tmpfs -o mode=700 none root/var/lib/strata
            cd root
            pivot_root . old
            umount -l /old
            rmdir /old
            ip link set lo up
            ip link add br0 type bridge
            ip addr add 10.77.0.1/24 dev br0
            ip link set br0 up
            echo ready
            exec cat
        """
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "bash", "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        assert self._holder.stdout is not None and self._holder.stdout.readline() == "ready\n"
        self.entering = ["nsenter", "--target", str(self._holder.pid), "--net", "--mount", f"--wdns={directory}"]

    def up(self) -> None:
        """Nothing runs yet."""

    def down(self) -> None:
        try:
            self.shell(END)
        finally:
            assert self._holder.stdin is not None and self._holder.stdout is not None
            self._holder.stdin.close()
            self._holder.wait(60)
            self._holder.stdout.close()


class Site(Machine):
    """Such a machine with a service that boots nodes."""

    service = "provisioning"

    def up(self) -> None:
        """The service and its nodes, or those that are there."""
        if self.state.exists():
            return
        self.state.mkdir(mode=0o700)
        for kernel in (b"the one before", b"the latest"):
            put_build(self.state / "minos", self.state / "signing", kernel)
        (self.directory / "networks.yaml").write_text(
            "boot_port: 4280\nunknown: discover\nsubnets:\n  - {network: 10.77.0.0/24, interface: br0, "
            "server: 10.77.0.1, gateway: 10.77.0.1, range: 10.77.0.10-10.77.0.250}\n",
            encoding="utf-8",
        )
        rows = [
            f'n{n:04},compute,http://127.0.0.1:4290/bmc/n{n:05},"mac=52:54:00:00:00:{n:02x},address=10.77.0.{10 + n}"'
            for n in range(1, NODES + 1)
        ]
        text = "\n".join(("name,role,bmc,interfaces", *rows, ""))
        (self.directory / "nodes.csv").write_text(text, encoding="utf-8")
        self.shell(
            f"""set -e
            bmcs --nodes {NODES} --port 4290 --scale 0.01 > bmcs.log 2>&1 & echo $! >> begun
            service --networks networks.yaml --listen 127.0.0.1:8443
            echo {PASSWORD} | strata hardware credentials set default --user root --password-file -
            strata node add -f nodes.csv
            strata group create compute 'n[0001-{NODES:04}]'"""
        )


def sitting_at(kind: type[Desk]) -> Iterator[Desk]:
    """A desk of this kind, and nothing of it afterwards."""
    # Not pytest's own directory: the path of a unix socket must be short.
    directory = Path(tempfile.mkdtemp(prefix="docs-"))
    desk = kind(directory)
    try:
        yield desk
    finally:
        try:
            desk.down()
        finally:
            shutil.rmtree(directory)
