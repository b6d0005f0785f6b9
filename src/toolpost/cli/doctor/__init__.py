"""`toolpost doctor`: checks of the setup, servers, plugins and tools; parts add their own."""
