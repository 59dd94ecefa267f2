"""The window's longest gap while a model is downloaded from a hub on loopback.

    python tests/bench/download_gap.py [MIB]

A file of the given size (default 400 MiB) is downloaded, hashed and renamed by the real engine while the models' view
is shown. Prints the longest time the event loop did not turn, the longest turn in CPU time, and the rate.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "desktop"), str(ROOT / "tests" / "hub")]
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["PYTHONPATH"] = str(ROOT)
REPO = "bench/Big-GGUF"


def big_file(folder: Path, mib: int, header: bytes) -> Path:
    """A GGUF header and then noise, so that nothing can be compressed or skipped."""
    path = folder / "Big-Q4_1.gguf"
    block = os.urandom(1 << 20)
    with path.open("wb") as file:
        file.write(header)
        for _ in range(mib):
            file.write(block)
    return path


def serve(path: Path) -> None:
    """The hub, in a process of its own: in ours its threads would hold up the window's."""
    from hub_server import Hub, Repo, Stored

    with Hub({REPO: Repo({path.name: Stored(disk=path)})}) as hub:
        print(hub.endpoint, flush=True)
        sys.stdin.read()


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]))
        return
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    from heartbeat import Heartbeat, run_for, run_until

    from desktop import app
    from engine.models import starter
    from engine.paths import resolve

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(HOME=name, HF_HOME=f"{name}/hf", INGLENOOK_HOME=f"{name}/profile")
        own = starter.find()
        assert own is not None
        path = big_file(folder, mib, own.read_bytes())
        command = [sys.executable, __file__, "--serve", str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hub:
            assert hub.stdin is not None and hub.stdout is not None
            os.environ["HF_ENDPOINT"] = hub.stdout.readline().strip()
            qt = app.make_qt_app(["bench"])
            options = app.Options(load_model=False)
            window_app = app.Application(qt, resolve(folder / "profile").ensure(), options)
            window_app.start()
            window = window_app.window
            assert run_until(lambda: window._painted, 20)
            view = window.show_models()
            assert run_until(lambda: view.discover._judged, 60)
            view.show_model(REPO)
            assert run_until(lambda: view.model_page.table.button.isVisible(), 60)
            run_for(2.0)
            view.model_page.table.button.click()
            assert run_until(lambda: bool(view.downloads_page.strips), 20)
            view.show_tab(2)
            start = time.perf_counter()
            with Heartbeat() as beat:
                assert run_until(lambda: view.downloads_page.strips[0].buttons["show"].isVisible(), 600)
            took = time.perf_counter() - start
            size = path.stat().st_size
            print(f"{size / 2**20:.0f} MiB in {took:.1f} s, {size / 2**20 / took:.0f} MiB/s")
            print(
                f"longest gap {beat.longest_s * 1000:.1f} ms, longest turn {beat.longest_turn_s * 1000:.1f} ms of CPU"
            )
            print(f"gaps over 50 ms: {beat.count_over(0.05)} of {len(beat.gaps_s)}")
            window_app.close()
            run_until(lambda: window_app.ended, 20)
            window.deleteLater()
            hub.stdin.close()


if __name__ == "__main__":
    main()
