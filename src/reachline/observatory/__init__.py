"""The role that observes an Xray document's outbounds, keeps its balancers, and answers as Xray's interfaces do."""
