"""All benchmarks, one after the other; each module also runs alone and has options."""

import subprocess
import sys

if __name__ == "__main__":
    for name in ("frames", "group_commit", "canvas"):
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
