"""The agent: probes the lines of a center's plan, keeps their windows, reports readings. Judges nothing.

`run(AgentRun(...), stop=event)` is the whole role; `Prober` alone is what `watch` uses, without any center.
"""
