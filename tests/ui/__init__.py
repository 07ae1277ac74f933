"""The browser client and the page: in Node without a network, and in Chromium against a real server."""
