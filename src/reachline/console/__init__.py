"""The console's page: assets only, no Python. Whoever starts a center hands it this folder; see `index.html`."""
