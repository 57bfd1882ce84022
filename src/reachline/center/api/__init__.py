"""The HTTP door: the API of people, SDKs and foreign agents, and the console's files. Renders, never decides."""
