"""Stands where a Spark job does, as a process of its own: `python job_twin.py JOB --config FILE --result FILE`.

What it does is said by $JOB_TWIN, a JSON object: {"result": {...}, "status": N, "say": TEXT, "hang": FILE}. It copies its
configuration, and the mode of that file, to $JOB_TWIN_SEEN.
"""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

job, config, result = sys.argv[1], Path(sys.argv[3]), Path(sys.argv[5])
plan = json.loads(os.environ["JOB_TWIN"])
seen = {
    "job": job,
    "config": json.loads(config.read_text()),
    "mode": stat.S_IMODE(config.stat().st_mode),
    "folder_mode": stat.S_IMODE(config.parent.stat().st_mode),
    "environment": sorted(os.environ),
}
Path(os.environ["JOB_TWIN_SEEN"]).write_text(json.dumps(seen))
print(plan.get("say", "").format(**seen["config"]["database"]), flush=True)
if "hang" in plan:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # as Spark has its JVM
    Path(plan["hang"]).write_text(json.dumps([os.getpid(), child.pid]))
    time.sleep(600)
if "result" in plan:
    result.write_text(plan["result"] if isinstance(plan["result"], str) else json.dumps(plan["result"]))
sys.exit(plan.get("status", 0))
