"""Judge, remember, publish: agents in, snapshots out. `run` is the whole role."""
